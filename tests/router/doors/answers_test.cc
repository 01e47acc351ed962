// What answers look like, byte by byte: TGI, chat and completions, whole and streamed, with and
// without log-probabilities, and errors on every door.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/version.h"
#include "router/doors/http/json.h"
#include "router/errors.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

// Replaces what differs between runs: id and creation time.
std::string Masked(const RawResponse& response) {
  std::string text = response.body;
  const std::string id = response.headers.at("x-request-id");
  text = absl::StrReplaceAll(text, {{id, "ID"}, {absl::StrCat(Version(), "-", Revision()), "V"}});
  const std::string key = "\"created\":";
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    const size_t begin = at + key.size();
    text.replace(begin, text.find(',', begin) - begin, "T");
  }
  return text;
}

Script LogprobScript() {
  return {{Started()},
          {TokenWithLogprob(10, "a\n", -0.5f, {{10, -0.5f, "a\n"}, {11, -1.25f, "b"}})},
          {TokenWithLogprob(12, "\xc3\xa4", -2.0f, {{10, -0.5f, "a\n"}, {11, -1.25f, "b"}}),
           Finished(FinishReason::kStopSequence, 2)}};
}

constexpr char kChunk[] = R"(data: {"id":"chatcmpl-ID","object":"chat.completion.chunk",)"
                          R"("created":T,"model":"fake/model","system_fingerprint":"weft-V",)"
                          R"("choices":)";

TEST_CASE("TGI's stream is one event a token, the last with text and details", "[router][tgi]") {
  DoorsFixture fixture;
  const RawResponse response = fixture.Post("/generate_stream", R"({"inputs":"Hi"})");
  CHECK(response.status == 200);
  CHECK(response.body ==
        R"(data: {"index":1,"token":{"id":10,"text":"Hello","logprob":null,"special":false},)"
        R"("generated_text":null,"details":null,"resume":{"seed":42,"fingerprint":"weft-V"}})"
        "\n\n"
        R"(data: {"index":2,"token":{"id":11,"text":" world","logprob":null,"special":false},)"
        R"("generated_text":"Hello world","details":{"finish_reason":"length",)"
        R"("generated_tokens":2,"seed":42,"input_length":3}})"
        "\n\n");
}

TEST_CASE("TGI's stream carries log-probabilities, top tokens and control tokens",
          "[router][tgi]") {
  DoorsFixture fixture;
  TokenEvent eos = TokenWithLogprob(2, "", -0.25f);
  eos.special = true;
  eos.bytes = "</s>";
  fixture.intake.SetScript(
      {{Started(), TokenWithLogprob(10, "", -0.5f, {{10, -0.5f, "x"}}),
        TokenWithLogprob(11, "\xc3\xa4", -1.0f), eos, Finished(FinishReason::kEosToken, 3)}});
  const RawResponse response =
      fixture.Post("/generate_stream",
                   R"({"inputs":"Hi","parameters":{"top_n_tokens":1,"return_full_text":true}})");
  CHECK(response.body ==
        R"(data: {"index":1,"token":{"id":10,"text":"","logprob":-0.5,"special":false},)"
        R"("top_tokens":[{"id":10,"text":"x","logprob":-0.5,"special":false}],)"
        R"("generated_text":null,"details":null,"resume":{"seed":42,"fingerprint":"weft-V"}})"
        "\n\n"
        "data: {\"index\":2,\"token\":{\"id\":11,\"text\":\"\xc3\xa4\",\"logprob\":-1,"
        R"("special":false},"top_tokens":[],"generated_text":null,"details":null})"
        "\n\n"
        R"(data: {"index":3,"token":{"id":2,"text":"</s>","logprob":-0.25,"special":true},)"
        "\"top_tokens\":[],\"generated_text\":\"Hi\xc3\xa4\",\"details\":{"
        R"("finish_reason":"eos_token","generated_tokens":3,"seed":42,"input_length":3}})"
        "\n\n");
  const auto request = fixture.intake.WaitRequest(0);
  CHECK(request->input().sampling.logprobs);
}

TEST_CASE("TGI's last event names a token even when the end came later", "[router][tgi]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate_stream", R"({"inputs":"Hi"})"));
  const auto request = fixture.intake.WaitRequest(0);
  request->Send({Started(), Token(10, "a")});
  REQUIRE(client.ReadHead().has_value());
  CHECK(absl::StrContains(client.ReadChunk(), R"("text":"a")"));
  request->Send({Finished(FinishReason::kStopSequence, 2, " tail")});
  const std::string last = client.ReadChunk();
  CHECK(absl::StrContains(
      last, R"(data: {"index":1,"token":{"id":10,"text":" tail","logprob":null,"special":false},)"
            R"("generated_text":"a tail","details":{"finish_reason":"stop_sequence")"));
}

TEST_CASE("TGI's whole answer has text, details and timing headers", "[router][tgi]") {
  DoorsFixture fixture;
  const RawResponse plain = fixture.Post("/generate", R"({"inputs":"Hi"})");
  CHECK(plain.body == R"({"generated_text":"Hello world"})");
  CHECK(plain.headers.at("x-total-time") == "13");
  CHECK(plain.headers.at("x-validation-time") == "1");
  CHECK(plain.headers.at("x-queue-time") == "2");
  CHECK(plain.headers.at("x-inference-time") == "10");
  CHECK(plain.headers.at("x-time-per-token") == "5");
  CHECK(plain.headers.at("x-prompt-tokens") == "3");
  CHECK(plain.headers.at("x-generated-tokens") == "2");
  CHECK_FALSE(fixture.intake.WaitRequest(0)->input().sampling.logprobs);

  fixture.intake.SetScript(LogprobScript());
  const RawResponse details = fixture.Post(
      "/generate", R"({"inputs":"Hi","parameters":{"details":true,"top_n_tokens":2}})");
  const std::string top = R"([{"id":10,"text":"a\n","logprob":-0.5,"special":false},)"
                          R"({"id":11,"text":"b","logprob":-1.25,"special":false}])";
  CHECK(details.body ==
        absl::StrCat("{\"generated_text\":\"a\\n\xc3\xa4\",",
                     R"("details":{"finish_reason":"stop_sequence","generated_tokens":2,)"
                     R"("seed":42,"prefill":[],"tokens":[)"
                     R"({"id":10,"text":"a\n","logprob":-0.5,"special":false},)",
                     "{\"id\":12,\"text\":\"\xc3\xa4\",\"logprob\":-2,\"special\":false}],",
                     R"("top_tokens":[)", top, ",", top, "]}}"));
}

TEST_CASE("TGI's root route wraps whole answers in a list and streams on demand", "[router][tgi]") {
  DoorsFixture fixture;
  CHECK(fixture.Post("/", R"({"inputs":"Hi"})").body == R"([{"generated_text":"Hello world"}])");
  CHECK(fixture.Post("/", R"({"inputs":"Hi","parameters":{"return_full_text":true}})").body ==
        R"([{"generated_text":"HiHello world"}])");
  CHECK(absl::StartsWith(fixture.Post("/", R"({"inputs":"Hi","stream":true})").body, "data: "));
}

TEST_CASE("SageMaker's route takes bodies of every kind", "[router][tgi]") {
  DoorsFixture fixture;
  const auto invoke = [&](const std::string& body) { return fixture.Post("/invocations", body); };
  CHECK(invoke(R"({"inputs":"Hi"})").body == R"([{"generated_text":"Hello world"}])");
  CHECK(absl::StartsWith(invoke(R"({"inputs":"Hi","stream":true})").body, "data: {\"index\":1"));
  CHECK(invoke(R"({"inputs":"Hi"})").headers.count("x-validation-time") == 1);
  CHECK(absl::StrContains(invoke(R"({"messages":[{"role":"user","content":"x"}]})").body,
                          R"("object":"chat.completion")"));
  CHECK(absl::StrContains(invoke(R"({"prompt":"Hi"})").body, R"("object":"text_completion")"));
  CHECK(absl::StrContains(invoke(R"({"inputs":null,"prompt":"Hi"})").body, "text_completion"));
  // Whose body has several of the fields means TGI's own.
  CHECK(invoke(R"({"inputs":"Hi","prompt":"Ho"})").body == R"([{"generated_text":"Hello world"}])");

  const RawResponse neither = invoke("{}");
  CHECK(neither.status == 422);
  CHECK(neither.body == R"({"error":"`inputs`: is required","error_type":"validation"})");
  CHECK(invoke("[").status == 422);
  const RawResponse chat = invoke(R"({"messages":[]})");
  CHECK(chat.status == 400);
  CHECK(absl::StrContains(chat.body, R"("type":"invalid_request_error","param":"messages")"));
}

TEST_CASE("Tokenize answers ids, texts and byte ranges", "[router][tgi]") {
  DoorsFixture fixture;
  CHECK(fixture.Post("/tokenize", R"({"inputs":"ab"})").body ==
        R"([{"id":1,"text":"<s>","start":0,"stop":0},{"id":97,"text":"a","start":0,"stop":1},)"
        R"({"id":98,"text":"b","start":1,"stop":2}])");
  CHECK(fixture.Post("/tokenize", R"({"inputs":"a","add_special_tokens":false})").body ==
        R"([{"id":97,"text":"a","start":0,"stop":1}])");
  CHECK(fixture.Post("/chat_tokenize", R"({"messages":[{"role":"user","content":"x"}]})").body ==
        R"({"tokenize_response":[{"id":7,"text":"user:x;"}],"templated_text":"user:x;"})");
}

TEST_CASE("A chat stream sends the role with the first token and ends with DONE",
          "[router][openai]") {
  DoorsFixture fixture;
  const RawResponse response = fixture.Post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})");
  CHECK(Masked(response) ==
        absl::StrCat(kChunk,
                     R"([{"index":0,"delta":{"role":"assistant","content":"Hello"},)"
                     R"("logprobs":null,"finish_reason":null}]})",
                     "\n\n", kChunk,
                     R"([{"index":0,"delta":{"content":" world"},)"
                     R"("logprobs":null,"finish_reason":"length"}]})",
                     "\n\ndata: [DONE]\n\n"));
}

TEST_CASE("Chunks between the first and the last differ in their text alone", "[router][openai]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(
      {{Started(), Token(1, "\"x\""), Token(2, "say \"x\"\n"), Token(3, "\xc3\xa4"), Token(4, "")},
       {Token(5, "."), Finished(FinishReason::kEosToken, 5)}});
  const auto chunk = [](absl::string_view delta, absl::string_view rest) {
    return absl::StrCat(kChunk, R"([{"index":0,"delta":{)", delta, R"(},"logprobs":null,)", rest,
                        "}\n\n");
  };
  constexpr absl::string_view kMore = R"("finish_reason":null}],"usage":null)";
  CHECK(absl::StartsWith(
      Masked(fixture.Post("/v1/chat/completions",
                          R"({"messages":[{"role":"user","content":"x"}],"stream":true,)"
                          R"("stream_options":{"include_usage":true}})")),
      absl::StrCat(chunk(R"("role":"assistant","content":"\"x\"")", kMore),
                   chunk(R"("content":"say \"x\"\n")", kMore),
                   chunk("\"content\":\"\xc3\xa4\"", kMore), chunk(R"("content":"")", kMore),
                   chunk(R"("content":".")", R"("finish_reason":"stop"}],"usage":null)"))));
  const std::string completion =
      Masked(fixture.Post("/v1/completions", R"({"prompt":"x","stream":true})"));
  CHECK(absl::StrContains(completion,
                          R"("choices":[{"index":0,"text":"say \"x\"\n","logprobs":null,)"
                          R"("finish_reason":null}]})"
                          "\n\ndata: {"));
}

TEST_CASE("A chat stream counts usage when asked to", "[router][openai]") {
  DoorsFixture fixture;
  const std::string usage = R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
                            R"("prompt_tokens_details":{"cached_tokens":1})";
  const std::string reasoning = R"(,"completion_tokens_details":{"reasoning_tokens":0}})";
  const std::string asked = Masked(fixture.Post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true,)"
                              R"("stream_options":{"include_usage":true}})"));
  CHECK(absl::StrContains(asked, R"("finish_reason":null}],"usage":null})"));
  CHECK(absl::EndsWith(
      asked, absl::StrCat(kChunk, "[],\"usage\":", usage, reasoning, "}\n\ndata: [DONE]\n\n")));
  const std::string always =
      Masked(fixture.Post("/v1/completions", R"({"prompt":"x","stream":true,"stream_options":)"
                                             R"({"continuous_usage_stats":true}})"));
  CHECK(absl::StrContains(always, R"("finish_reason":null}],"usage":{"prompt_tokens":3,)"
                                  R"("completion_tokens":1,"total_tokens":4)"));
  CHECK(absl::StrContains(always, "\"usage\":" + usage + "}"));
}

TEST_CASE("An answer that began with a sign of life counts its prompt all the same",
          "[router][openai]") {
  HttpServerOptions options;
  options.limits.silence_us = 20'000;
  DoorsFixture fixture(options);
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/v1/completions",
                       R"({"prompt":"x","stream":true,"stream_options":)"
                       R"({"include_usage":true,"continuous_usage_stats":true}})"));
  REQUIRE(client.ReadHead().has_value());
  REQUIRE(client.ReadChunk() == ": waiting\n\n");
  const auto request = fixture.intake.WaitRequest(0);
  REQUIRE(request != nullptr);
  request->Send({Started(3, 1), Token(1, "a")});
  request->Send({Finished(FinishReason::kLength, 1)});
  std::string body;
  for (std::string chunk; !(chunk = client.ReadChunk()).empty();) body += chunk;
  INFO(body);
  CHECK(absl::StrContains(body,
                          R"("usage":{"prompt_tokens":3,"completion_tokens":1,)"
                          R"("total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}})"));
  CHECK_FALSE(absl::StrContains(body, R"("prompt_tokens":0)"));
  CHECK_FALSE(absl::StrContains(body, R"("cached_tokens":0)"));
}

TEST_CASE("Chat log-probabilities have OpenAI's shape", "[router][openai]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(LogprobScript());
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":2)";
  const std::string top = R"("top_logprobs":[{"token":"a\n","logprob":-0.5,"bytes":[97,10]},)"
                          R"({"token":"b","logprob":-1.25,"bytes":[98]}]})";
  const std::string first = R"({"token":"a\n","logprob":-0.5,"bytes":[97,10],)" + top;
  const std::string second = "{\"token\":\"\xc3\xa4\",\"logprob\":-2,\"bytes\":[195,164]," + top;
  CHECK(Masked(fixture.Post("/v1/chat/completions", body + "}")) ==
        absl::StrCat(R"({"id":"chatcmpl-ID","object":"chat.completion","created":T,)"
                     R"("model":"fake/model","system_fingerprint":"weft-V","choices":[{"index":0,)"
                     R"("message":{"role":"assistant","content":)",
                     "\"a\\n\xc3\xa4\"", R"(,"refusal":null},"logprobs":{"content":[)", first, ",",
                     second,
                     R"(],"refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,)"
                     R"("completion_tokens":2,"total_tokens":5,"prompt_tokens_details":)"
                     R"({"cached_tokens":1},"completion_tokens_details":)"
                     R"({"reasoning_tokens":0}}})"));
  const std::string stream =
      Masked(fixture.Post("/v1/chat/completions", body + ",\"stream\":true}"));
  CHECK(absl::StrContains(stream, absl::StrCat(R"("logprobs":{"content":[)", first,
                                               R"(],"refusal":null},"finish_reason":null)")));
}

TEST_CASE("Completion log-probabilities have OpenAI's shape", "[router][openai]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(LogprobScript());
  CHECK(Masked(fixture.Post("/v1/completions", R"({"prompt":"x","logprobs":2})")) ==
        absl::StrCat(R"({"id":"cmpl-ID","object":"text_completion","created":T,)"
                     R"("model":"fake/model","system_fingerprint":"weft-V","choices":[{"index":0,)",
                     "\"text\":\"a\\n\xc3\xa4\",",
                     R"("logprobs":{"text_offset":[0,2],"token_logprobs":[-0.5,-2],)",
                     "\"tokens\":[\"a\\n\",\"\xc3\xa4\"],",
                     R"("top_logprobs":[{"a\n":-0.5,"b":-1.25},{"a\n":-0.5,"b":-1.25,)",
                     "\"\xc3\xa4\":-2}]},",
                     R"("finish_reason":"stop"}],"usage":{"prompt_tokens":3,)"
                     R"("completion_tokens":2,"total_tokens":5,"prompt_tokens_details":)"
                     R"({"cached_tokens":1}}})"));
  CHECK(absl::StrContains(fixture.Post("/v1/completions", R"({"prompt":"x","logprobs":0})").body,
                          R"("top_logprobs":null)"));
  const std::string stream =
      Masked(fixture.Post("/v1/completions", R"({"prompt":"x","logprobs":0,"stream":true})"));
  CHECK(absl::StrContains(stream, R"("text":"a\n","logprobs":{"text_offset":[0],)"));
  CHECK(absl::StrContains(stream, R"("logprobs":{"text_offset":[2],)"));
}

TEST_CASE("Offsets of completions' tokens count characters, however many bytes they have",
          "[router][openai]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(
      {{Started(), TokenWithLogprob(10, "\xc3\xa4", -1.0f),
        TokenWithLogprob(11, "\xe2\x82\xac\xf0\x9f\x98\x80", -1.0f),
        TokenWithLogprob(12, "x", -1.0f), Finished(FinishReason::kLength, 3)}});
  CHECK(absl::StrContains(fixture.Post("/v1/completions", R"({"prompt":"x","logprobs":0})").body,
                          R"("text_offset":[0,1,3])"));
}

TEST_CASE("Bytes that are no text do not break the JSON", "[router][openai]") {
  DoorsFixture fixture;
  TokenEvent half = TokenWithLogprob(10, "", -1.0f);
  half.bytes = "\xe2\x82";
  half.logprob = -INFINITY;
  fixture.intake.SetScript({{Started(), half, Finished(FinishReason::kLength, 1)}});
  const RawResponse response = fixture.Post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"logprobs":true})");
  CHECK(ParseJson(response.body).ok());
  CHECK(absl::StrContains(response.body,
                          "\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999,"
                          "\"bytes\":[226,130]"));
}

TEST_CASE("Models are listed, and found by any of their names", "[router][openai]") {
  DoorOptions options;
  options.model_aliases = {"alias"};
  DoorsFixture fixture({}, options);
  const std::string model =
      R"({"id":"fake/model","object":"model","created":1700000000,"owned_by":"weft",)"
      R"("root":"fake/model","parent":null,"max_model_len":2048})";
  CHECK(fixture.Get("/v1/models").body == R"({"object":"list","data":[)" + model + "]}");
  for (const char* name : {"fake/model", "fake%2Fmodel", "alias", "tgi"}) {
    CHECK(fixture.Get(absl::StrCat("/v1/models/", name)).body == model);
  }
  const RawResponse unknown = fixture.Get("/v1/models/gpt-4");
  CHECK(unknown.status == 404);
  CHECK(absl::StrContains(unknown.body, R"("code":"model_not_found")"));
  const RawResponse wrong = fixture.Post("/v1/completions", R"({"model":"gpt-4","prompt":"x"})");
  CHECK(wrong.status == 404);
  CHECK(fixture.Post("/v1/completions", R"({"model":"alias","prompt":"x"})").status == 200);
}

// -- Errors --------------------------------------------------------------------------------------

struct Failure {
  absl::Status status;
  int tgi_code;
  const char* tgi_type;
  int openai_code;
  const char* openai_type;
  const char* openai_word;
};

TEST_CASE("Errors before the first token are real status codes", "[router][http]") {
  const Failure failures[] = {
      {FieldError("prompt", "too long"), 422, "validation", 400, "invalid_request_error", "null"},
      {OverloadedError("QUEUE_FULL", "full", absl::Milliseconds(1500)), 429, "overloaded", 429,
       "rate_limit_error", "\"queue_full\""},
      {UnavailableError("LOADING", "wait", absl::ZeroDuration()), 503, "unavailable", 503,
       "service_unavailable_error", "\"loading\""},
      {absl::InternalError("boom"), 424, "generation", 500, "server_error", "\"internal_error\""},
      {absl::DeadlineExceededError("late"), 504, "deadline", 504, "server_error",
       "\"deadline_exceeded\""}};
  DoorsFixture fixture;
  for (const Failure& failure : failures) {
    INFO(failure.status);
    fixture.intake.SetScript({{Started()}, {FailedEvent{failure.status}}});
    for (const char* path : {"/generate", "/generate_stream"}) {
      const RawResponse tgi = fixture.Post(path, R"({"inputs":"x"})");
      CHECK(tgi.status == failure.tgi_code);
      CHECK(absl::StrContains(tgi.body, absl::StrCat("\"error_type\":\"", failure.tgi_type, "\"")));
    }
    const RawResponse openai = fixture.Post("/v1/completions", R"({"prompt":"x","stream":true})");
    CHECK(openai.status == failure.openai_code);
    CHECK(absl::StrContains(openai.body, absl::StrCat("\"type\":\"", failure.openai_type, "\"")));
    CHECK(absl::StrContains(openai.body, absl::StrCat("\"code\":", failure.openai_word)));
    CHECK(openai.headers.count("retry-after") == (RetryAfter(failure.status).has_value() ? 1 : 0));
    // What is of no use to send again says so: clients do it by themselves otherwise.
    CHECK(openai.headers.count("x-should-retry") ==
          (failure.openai_code == 500 || failure.openai_code == 504 ? 1 : 0));
  }
}

TEST_CASE("Retry-After is in whole seconds, at least one", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(
      {{FailedEvent{OverloadedError("QUEUE_FULL", "full", absl::Milliseconds(1500))}}});
  CHECK(fixture.Post("/generate", R"({"inputs":"x"})").headers.at("retry-after") == "2");
  fixture.intake.SetScript(
      {{FailedEvent{OverloadedError("QUEUE_FULL", "full", absl::ZeroDuration())}}});
  CHECK(fixture.Post("/generate", R"({"inputs":"x"})").headers.at("retry-after") == "1");
}

TEST_CASE("A field that the entrance refuses has the name that the request's own door gives it",
          "[router][tgi][openai]") {
  DoorsFixture fixture;
  fixture.intake.RefuseRequests(FieldError("priority", "must be from -5 to 5 for tenant team"));
  for (const char* path : {"/generate", "/generate_stream", "/", "/invocations"}) {
    const RawResponse response =
        fixture.Post(path, R"({"inputs":"Hi","parameters":{"priority":9},"nonsense":1})");
    CHECK(response.status == 422);
    CHECK(absl::StrContains(response.body, "`parameters.priority`: must be from -5 to 5"));
    CHECK(response.headers.at("x-weft-ignored-fields") == "nonsense");
  }
  for (const char* path : {"/v1/completions", "/invocations"}) {
    const RawResponse response = fixture.Post(path, R"({"prompt":"Hi","priority":9})");
    CHECK(response.status == 400);
    CHECK(absl::StrContains(response.body, R"("param":"priority")"));
  }
  // A long body is read by another thread.
  const std::string text(kLongBodyBytes, 'x');
  CHECK(absl::StrContains(
      fixture.Post("/generate", absl::StrCat(R"({"inputs":")", text, R"("})")).body,
      "`parameters.priority`"));
}

TEST_CASE("The engine's field names appear in each door's words", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{FailedEvent{FieldError("max_tokens", "too many")}}});
  CHECK(fixture.Post("/generate", R"({"inputs":"x"})").body ==
        R"({"error":"`parameters.max_new_tokens`: too many","error_type":"validation"})");
  fixture.intake.SetScript({{FailedEvent{FieldError("prompt", "too long")}}});
  CHECK(fixture.Post("/generate", R"({"inputs":"x"})").body ==
        R"({"error":"`inputs`: too long","error_type":"validation"})");
  CHECK(absl::StrContains(
      fixture.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})").body,
      R"("message":"`messages`: too long","type":"invalid_request_error","param":"messages")"));
}

TEST_CASE("Errors after the first token are the stream's last event", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{Started(), Token(1, "x")}, {FailedEvent{absl::AbortedError("lost")}}});
  const RawResponse tgi = fixture.Post("/generate_stream", R"({"inputs":"x"})");
  CHECK(tgi.status == 200);
  CHECK(absl::EndsWith(tgi.body, "data: {\"error\":\"lost\",\"error_type\":\"unavailable\"}\n\n"));
  const RawResponse openai = fixture.Post("/v1/completions", R"({"prompt":"x","stream":true})");
  CHECK(absl::EndsWith(openai.body,
                       R"(data: {"error":{"message":"lost","type":"service_unavailable_error",)"
                       R"("param":null,"code":"unavailable"}})"
                       "\n\ndata: [DONE]\n\n"));
}

TEST_CASE("Before the model is ready requests get 503 and startupz the percent", "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.SetStatus({ServerState::kLoading, 42, "reading weights", 0});
  const RawResponse refused = fixture.Post("/generate", R"({"inputs":"x"})");
  CHECK(refused.status == 503);
  CHECK(refused.headers.at("retry-after") == "1");
  const RawResponse startup = fixture.Get("/startupz");
  CHECK(startup.status == 503);
  CHECK(startup.body == R"({"status":"unavailable","state":"loading","percent":42,)"
                        R"("detail":"reading weights","stalled_ms":0})");
  CHECK(fixture.Get("/health").status == 503);
  CHECK(fixture.Get("/health").body == R"({"error":"unhealthy","error_type":"healthcheck"})");
  CHECK(fixture.Get("/ping").status == 503);
  CHECK(fixture.Get("/ping").body == fixture.Get("/health").body);
  CHECK(fixture.Get("/readyz").status == 503);
  CHECK(fixture.Get("/livez").status == 200);
  // What no shard has told yet is not answered with zeros.
  for (const char* path : {"/info", "/server_info", "/v1/models", "/v1/models/tgi"}) {
    const RawResponse early = fixture.Get(path);
    CHECK(early.status == 503);
    CHECK(early.headers.at("retry-after") == "1");
    CHECK(absl::StrContains(early.body, "the model is not ready: loading, 42 %"));
  }
  fixture.intake.SetStatus({ServerState::kRecovering, 100, "", 0});
  CHECK(fixture.Get("/readyz").status == 503);
  CHECK(fixture.Get("/health").status == 200);
  CHECK(fixture.Get("/ping").status == 200);
  CHECK(fixture.Get("/ping").body.empty());
  CHECK(fixture.Get("/info").status == 200);
  CHECK(fixture.Post("/generate", R"({"inputs":"x"})").status == 200);
  fixture.intake.SetStatus({ServerState::kReady, 100, "", kStalledUsMax + 1});
  CHECK(fixture.Get("/livez").status == 503);
  CHECK(fixture.Get("/readyz").status == 200);
}

TEST_CASE("SGLang's server info says what info says, under its names", "[router][ops]") {
  DoorsFixture fixture;
  const std::string body = fixture.Get("/server_info").body;
  CHECK(absl::StartsWith(
      body, R"({"model_path":"fake/model","served_model_name":"fake/model","model_type":"llama",)"
            R"("is_generation":true,"has_chat_template":true,"tool_call_parser":"none",)"
            R"("reasoning_parser":"none","dtype":"bfloat16","device":"cpu","vocab_size":300,)"
            R"("context_length":2048,"tp_size":2,"dp_size":1,"max_total_tokens":1024,)"));
  CHECK(absl::EndsWith(body, R"("internal_states":[{"state":"ready"}]})"));
  CHECK(fixture.Get("/get_server_info").body == body);
  CHECK(fixture.Post("/server_info", "{}").status == 405);
}

TEST_CASE("Info, version, config and metrics answer", "[router][http]") {
  DoorOptions options;
  options.config = {{"http-port", "0 (flag)"}};
  options.text_threads = 3;
  HttpServerOptions http;
  http.admin_port = 0;
  DoorsFixture fixture(http, options);
  const std::string info = fixture.Get("/info").body;
  CHECK(ParseJson(info).ok());
  CHECK(absl::StrContains(info, R"("model_id":"fake/model")"));
  CHECK(absl::StrContains(info, R"("validation_workers":3)"));
  CHECK(absl::StrContains(
      info, absl::StrCat("\"max_concurrent_requests\":", kRunningDefault + kQueueRequestsDefault)));
  CHECK(fixture.Get("/config").status == 404);
  const std::string ask = "GET /config HTTP/1.1\r\nhost: localhost\r\n\r\n";
  CHECK(Fetch(fixture.server->admin_port(), ask).body == R"x({"http-port":"0 (flag)"})x");
  const RawResponse metrics = fixture.Get("/metrics");
  CHECK(absl::StartsWith(metrics.headers.at("content-type"), "text/plain; version=0.0.4"));
  CHECK(absl::StrContains(metrics.body, "weft_server_state{"));
}

}  // namespace
}  // namespace weft::router
