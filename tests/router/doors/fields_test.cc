// Every field on every HTTP door: wrong types, out of range, refused, neutral, implemented,
// unknown.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

enum class Body { kTgi, kTgiParameters, kChat, kCompletion };

std::string PathOf(Body body) {
  if (body == Body::kChat) return "/v1/chat/completions";
  return body == Body::kCompletion ? "/v1/completions" : "/generate";
}

// A good body with `field` ("\"top_k\":3") added to it.
std::string With(Body body, const std::string& field) {
  const std::string more = field.empty() ? "" : "," + field;
  switch (body) {
    case Body::kTgi:
      return absl::StrCat(R"({"inputs":"x")", more, "}");
    case Body::kTgiParameters:
      return absl::StrCat(R"({"inputs":"x","parameters":{)", field, "}}");
    case Body::kChat:
      return absl::StrCat(R"({"messages":[{"role":"user","content":"x"}])", more, "}");
    case Body::kCompletion:
      return absl::StrCat(R"({"prompt":"x")", more, "}");
  }
  return "";
}

struct Case {
  const char* field;
  const char* value;
};

void CheckRefused(const DoorsFixture& fixture, Body body, const std::string& name,
                  const std::string& text) {
  INFO(text);
  const RawResponse response = fixture.Post(PathOf(body), text);
  const bool tgi = body == Body::kTgi || body == Body::kTgiParameters;
  CHECK(response.status == (tgi ? 422 : 400));
  const std::string full = body == Body::kTgiParameters ? "parameters." + name : name;
  if (tgi) {
    CHECK(absl::StrContains(response.body, absl::StrCat("{\"error\":\"`", full, "`: ")));
    CHECK(absl::EndsWith(response.body, R"(,"error_type":"validation"})"));
  } else {
    CHECK(absl::StrContains(
        response.body,
        absl::StrCat(R"(,"type":"invalid_request_error","param":")", full, R"(","code":null}})")));
  }
}

// Refused with these values on every door that has common parameters.
constexpr Case kCommonWrong[] = {
    {"top_k", "-2"},
    {"top_k", "1.5"},
    {"top_k", "\"3\""},
    {"top_k", "true"},
    {"top_k", "99999999999999999999"},
    {"top_p", "0"},
    {"top_p", "1.01"},
    {"top_p", "\"1\""},
    {"top_p", "[]"},
    {"top_p", "1e-60"},
    {"min_p", "-0.1"},
    {"min_p", "1.1"},
    {"typical_p", "0"},
    {"typical_p", "2"},
    {"repetition_penalty", "0"},
    {"repetition_penalty", "0.009"},
    {"repetition_penalty", "1e-37"},
    {"repetition_penalty", "10.5"},
    {"presence_penalty", "-2.1"},
    {"presence_penalty", "{}"},
    {"frequency_penalty", "2.1"},
    {"logit_bias", "[]"},
    {"logit_bias", "{\"a\":1}"},
    {"logit_bias", "{\"-1\":1}"},
    {"logit_bias", "{\"01\":1}"},
    {"logit_bias", "{\"1048576\":1}"},
    {"logit_bias", "{\"1\":101}"},
    {"logit_bias", "{\"1\":\"1\"}"},
    {"seed", "1.5"},
    {"seed", "\"1\""},
    {"seed", "18446744073709551616"},
    {"ignore_eos", "1"},
    {"priority", "101"},
    {"priority", "-101"},
    {"add_special_tokens", "\"yes\""},
    {"stop", "5"},
    {"stop", "\"\""},
    {"stop", "[1]"},
    {"stop", "[\"\"]"},
    {"stop", R"(["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"},
    {"temperature", "-0.1"},
    {"temperature", "101"},
    {"temperature", "\"hot\""},
    {"best_of", "2"},
    {"adapter_id", "\"x\""},
    {"grammar", "{\"type\":\"json\",\"value\":{}}"},
    {"stop_token_ids", "[2]"},
    {"length_penalty", "2"},
};

TEST_CASE("Common fields out of range or of the wrong type are refused by name",
          "[router][fields]") {
  DoorsFixture fixture;
  for (const Body body : {Body::kTgiParameters, Body::kChat, Body::kCompletion}) {
    for (const Case& wrong : kCommonWrong) {
      CheckRefused(fixture, body, wrong.field,
                   With(body, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
    }
    const std::string long_stop(kStopSequenceBytesMax + 1, 's');
    CheckRefused(fixture, body, "stop", With(body, absl::StrCat("\"stop\":[\"", long_stop, "\"]")));
    std::string many = "\"logit_bias\":{";
    for (size_t i = 0; i <= kLogitBiasMax; ++i)
      absl::StrAppend(&many, i ? "," : "", "\"", i, "\":1");
    CheckRefused(fixture, body, "logit_bias", With(body, many + "}"));
  }
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("TGI's own fields are refused by name when they are wrong", "[router][fields]") {
  DoorsFixture fixture;
  constexpr Case kWrong[] = {{"temperature", "0"},      {"max_new_tokens", "0"},
                             {"max_new_tokens", "-1"},  {"max_new_tokens", "\"5\""},
                             {"max_new_tokens", "1e9"}, {"truncate", "0"},
                             {"do_sample", "1"},        {"return_full_text", "\"true\""},
                             {"details", "0"},          {"top_n_tokens", "21"},
                             {"top_n_tokens", "-1"},    {"watermark", "true"},
                             {"watermark", "1"},        {"decoder_input_details", "true"},
                             {"num_beams", "4"},        {"min_new_tokens", "3"}};
  for (const Case& wrong : kWrong) {
    CheckRefused(fixture, Body::kTgiParameters, wrong.field,
                 With(Body::kTgiParameters, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  constexpr Case kTop[] = {{"stream", "true"}, {"stream", "0"}, {"parameters", "[]"}};
  for (const Case& wrong : kTop) {
    CheckRefused(fixture, Body::kTgi, wrong.field,
                 With(Body::kTgi, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  for (const char* text : {"{}", R"({"inputs":null})", R"({"inputs":""})", R"({"inputs":7})",
                           R"({"inputs":[]})", R"({"inputs":["a"]})", R"({"inputs":[-1]})",
                           R"({"inputs":[1.5]})", R"({"inputs":[1048576]})"}) {
    CheckRefused(fixture, Body::kTgi, "inputs", text);
  }
  CHECK(fixture.Post("/tokenize", "{}").status == 422);
  CHECK(fixture.Post("/tokenize", R"({"inputs":1})").status == 422);
  CHECK(fixture.Post("/tokenize", R"({"inputs":"a","add_special_tokens":3})").status == 422);
  CHECK(fixture.Post("/chat_tokenize", "{}").status == 422);
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("OpenAI's fields are refused by name when they are wrong or not served",
          "[router][fields]") {
  DoorsFixture fixture;
  constexpr Case kBoth[] = {{"n", "2"},
                            {"n", "\"1\""},
                            {"max_tokens", "0"},
                            {"max_tokens", "1.5"},
                            {"model", "5"},
                            {"stream", "\"true\""},
                            {"stream_options", "{\"include_usage\":true}"},
                            {"stream_options", "[]"},
                            {"store", "true"},
                            {"service_tier", "\"flex\""},
                            {"min_tokens", "1"},
                            {"prompt_logprobs", "1"},
                            {"guided_json", "{}"},
                            {"guided_regex", "\"a\""},
                            {"guided_choice", "[\"a\"]"},
                            {"structured_outputs", "{}"},
                            {"response_format", "{\"type\":\"json_object\"}"},
                            {"use_beam_search", "true"},
                            {"skip_special_tokens", "false"},
                            {"return_token_ids", "true"},
                            {"truncate_prompt_tokens", "0"},
                            {"truncate_prompt_tokens", "-2"},
                            {"include_stop_str_in_output", "1"},
                            {"logits_processors", "[\"x\"]"},
                            {"allowed_token_ids", "[1]"},
                            {"bad_words", "[\"a\"]"},
                            {"cache_salt", "\"x\""}};
  for (const Body body : {Body::kChat, Body::kCompletion}) {
    for (const Case& wrong : kBoth) {
      CheckRefused(fixture, body, wrong.field,
                   With(body, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
    }
    CheckRefused(fixture, body, "stream_options.include_usage",
                 With(body, R"("stream":true,"stream_options":{"include_usage":1})"));
    CheckRefused(fixture, body, "stream_options.include_obfuscation",
                 With(body, R"("stream":true,"stream_options":{"include_obfuscation":true})"));
  }
  constexpr Case kChat[] = {{"max_completion_tokens", "0"},
                            {"logprobs", "1"},
                            {"top_logprobs", "2"},
                            {"top_logprobs", "21"},
                            {"tools", "[{\"type\":\"function\"}]"},
                            {"tool_choice", "\"required\""},
                            {"parallel_tool_calls", "false"},
                            {"functions", "[{}]"},
                            {"function_call", "{\"name\":\"f\"}"},
                            {"audio", "{}"},
                            {"modalities", "[\"audio\"]"},
                            {"prediction", "{}"},
                            {"reasoning_effort", "\"high\""},
                            {"verbosity", "\"low\""},
                            {"web_search_options", "{}"},
                            {"echo", "true"},
                            {"chat_template", "\"x\""},
                            {"continue_final_message", "true"},
                            {"add_generation_prompt", "0"},
                            {"documents", "[{}]"}};
  for (const Case& wrong : kChat) {
    CheckRefused(fixture, Body::kChat, wrong.field,
                 With(Body::kChat, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  CheckRefused(fixture, Body::kChat, "max_tokens",
               With(Body::kChat, R"("max_tokens":1,"max_completion_tokens":2)"));
  constexpr Case kCompletion[] = {{"suffix", "\"x\""},
                                  {"logprobs", "true"},
                                  {"logprobs", "21"},
                                  {"logprobs", "-1"},
                                  {"echo", "1"}};
  for (const Case& wrong : kCompletion) {
    CheckRefused(fixture, Body::kCompletion, wrong.field,
                 With(Body::kCompletion, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  CheckRefused(fixture, Body::kCompletion, "echo",
               With(Body::kCompletion, R"("echo":true,"logprobs":0)"));
  for (const char* text : {"{}", R"({"prompt":null})", R"({"prompt":""})", R"({"prompt":5})",
                           R"({"prompt":[]})", R"({"prompt":["a","b"]})", R"({"prompt":[[1],[2]]})",
                           R"({"prompt":[[]]})", R"({"prompt":[[[1]]]})", R"({"prompt":[-5]})",
                           R"({"prompt":[""]})", R"({"prompt":[1,"a"]})", R"({"prompt":{}})"}) {
    CheckRefused(fixture, Body::kCompletion, "prompt", text);
  }
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Messages are checked one by one", "[router][fields]") {
  DoorsFixture fixture;
  const auto refused = [&](const std::string& name, const std::string& messages) {
    CheckRefused(fixture, Body::kChat, name, absl::StrCat("{\"messages\":", messages, "}"));
  };
  CheckRefused(fixture, Body::kChat, "messages", "{}");
  refused("messages", "\"x\"");
  refused("messages", "[]");
  refused("messages[0]", "[5]");
  refused("messages[0].role", R"([{"content":"x"}])");
  refused("messages[0].role", R"([{"role":5,"content":"x"}])");
  refused("messages[0].role", R"([{"role":"king","content":"x"}])");
  refused("messages[1].role", R"([{"role":"user","content":"x"},{"role":"tool","content":"x"}])");
  refused("messages[0].content", R"([{"role":"user"}])");
  refused("messages[0].content", R"([{"role":"user","content":null}])");
  refused("messages[0].content", R"([{"role":"user","content":5}])");
  refused("messages[0].content[0]", R"([{"role":"user","content":["x"]}])");
  refused("messages[0].content[1].type",
          R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}])");
  refused("messages[0].content[0].text", R"([{"role":"user","content":[{"type":"text"}]}])");
  refused("messages[0].name", R"([{"role":"user","content":"x","name":"bob"}])");
  refused("messages[0].tool_calls", R"([{"role":"assistant","content":"x","tool_calls":[{}]}])");
  std::string many = "[";
  for (size_t i = 0; i <= kChatMessagesMax; ++i) {
    absl::StrAppend(&many, i ? "," : "", R"({"role":"user","content":"x"})");
  }
  refused("messages", many + "]");
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Bodies that are no JSON objects, or no UTF-8, are refused on every door",
          "[router][fields]") {
  DoorsFixture fixture;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[";
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[1]"), std::string("null"),
        std::string("{\"prompt\":\"x\"} x"), std::string("{\"prompt\":\"\xff\"}"),
        std::string("{\"prompt\":\"\\ud800\"}"), std::string("{\"prompt\":\"\xed\xa0\x80\"}"),
        std::string("{'prompt':'x'}"), std::string("{\"prompt\":\"x\",}"),
        "{\"prompt\":" + deep + "}", std::string("{\"prompt\":NaN}")}) {
    INFO(body);
    CHECK(fixture.Post("/v1/completions", body).status == 400);
    CHECK(fixture.Post("/v1/chat/completions", body).status == 400);
    for (const char* path : {"/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize"}) {
      const RawResponse response = fixture.Post(path, body);
      CHECK(response.status == 422);
      CHECK(absl::EndsWith(response.body, R"("error_type":"validation"})"));
    }
  }
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Null and neutral values are accepted", "[router][fields]") {
  DoorsFixture fixture;
  const auto good = [&](Body body, const std::string& field) {
    INFO(field);
    const RawResponse response = fixture.Post(PathOf(body), With(body, field));
    CHECK(response.status == 200);
    CHECK(response.headers.count("x-weft-ignored-fields") == 0);
  };
  for (const char* name : {"best_of",
                           "temperature",
                           "top_k",
                           "top_p",
                           "typical_p",
                           "repetition_penalty",
                           "frequency_penalty",
                           "presence_penalty",
                           "max_new_tokens",
                           "return_full_text",
                           "stop",
                           "truncate",
                           "watermark",
                           "details",
                           "decoder_input_details",
                           "seed",
                           "top_n_tokens",
                           "grammar",
                           "adapter_id",
                           "do_sample",
                           "logit_bias",
                           "min_p",
                           "ignore_eos",
                           "priority"}) {
    good(Body::kTgiParameters, absl::StrCat("\"", name, "\":null"));
  }
  good(Body::kTgiParameters,
       R"("best_of":1,"watermark":false,"decoder_input_details":false,"top_k":0,"top_p":1,)"
       R"("typical_p":1.0,"stop":[],"max_new_tokens":16.0)");
  for (const char* name : {"n",
                           "best_of",
                           "tools",
                           "tool_choice",
                           "response_format",
                           "service_tier",
                           "store",
                           "user",
                           "metadata",
                           "logit_bias",
                           "stop",
                           "seed",
                           "stream_options",
                           "logprobs",
                           "top_logprobs",
                           "max_tokens",
                           "max_completion_tokens",
                           "audio",
                           "modalities",
                           "prediction",
                           "functions",
                           "function_call",
                           "parallel_tool_calls",
                           "reasoning_effort",
                           "min_tokens",
                           "stop_token_ids",
                           "prompt_logprobs",
                           "guided_json",
                           "model",
                           "stream"}) {
    good(Body::kChat, absl::StrCat("\"", name, "\":null"));
  }
  good(Body::kChat,
       R"("n":1,"best_of":1,"tools":[],"tool_choice":"none","response_format":{"type":"text"},)"
       R"("service_tier":"default","store":false,"user":"u","metadata":{"a":"b"},)"
       R"("modalities":["text"],"parallel_tool_calls":true,"min_tokens":0,"stop_token_ids":[],)"
       R"("length_penalty":1.0,"skip_special_tokens":true,"verbosity":"medium","top_logprobs":0,)"
       R"("logprobs":false,"truncate_prompt_tokens":-1,"max_tokens":5,"max_completion_tokens":5)");
  good(Body::kCompletion,
       R"("suffix":"","best_of":1,"n":1,"echo":false,"logprobs":null,"user":"u")");
}

TEST_CASE("Unknown fields are ignored openly, and refused when the server is strict",
          "[router][fields]") {
  DoorsFixture fixture;
  const RawResponse chat = fixture.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x","mood":1}],"foo":1,"b\u0001r\n":2})");
  CHECK(chat.status == 200);
  CHECK(chat.headers.at("x-weft-ignored-fields") == "messages[0].mood, foo, b?r?");
  CHECK(fixture.Post("/generate", R"({"inputs":"x","foo":1,"parameters":{"bar":2}})")
            .headers.at("x-weft-ignored-fields") == "foo, parameters.bar");
  CHECK(fixture.Post("/v1/completions", R"({"prompt":"x","stream":true,"stream_options":{"x":1}})")
            .headers.at("x-weft-ignored-fields") == "stream_options.x");
  CHECK(fixture.Post("/chat_tokenize", R"({"messages":[{"role":"user","content":"x"}],"foo":1})")
            .headers.at("x-weft-ignored-fields") == "foo");
  CHECK(absl::StrContains(fixture.Get("/metrics").body,
                          "weft_request_ignored_fields_total{door=\"tgi\"} "));

  DoorOptions options;
  options.strict_fields = true;
  DoorsFixture strict({}, options);
  CheckRefused(strict, Body::kChat, "foo", With(Body::kChat, "\"foo\":1"));
  CheckRefused(strict, Body::kTgiParameters, "foo", With(Body::kTgiParameters, "\"foo\":1"));
  CHECK(strict.intake.request_count() == 0);
}

// -- What good fields become ---------------------------------------------------------------------

TEST_CASE("TGI's parameters reach the engine", "[router][fields]") {
  DoorsFixture fixture;
  fixture.Post("/generate",
               R"({"inputs":"Hi","parameters":{"max_new_tokens":7,"temperature":0.5,"top_k":3,)"
               R"("top_p":0.9,"min_p":0.1,"typical_p":0.8,"repetition_penalty":1.1,)"
               R"("presence_penalty":0.2,"frequency_penalty":-0.3,"logit_bias":{"9":1,"2":-1.5},)"
               R"("seed":18446744073709551615,"stop":["a","b"],"truncate":5,"ignore_eos":true,)"
               R"("priority":-4,"add_special_tokens":false,"details":true,"top_n_tokens":2}})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(std::get<std::string>(input.prompt) == "Hi");
  CHECK(input.max_tokens == 7u);
  CHECK(input.sampling.temperature == 0.5f);
  CHECK(input.sampling.top_k == 3);
  CHECK(input.sampling.top_p == 0.9f);
  CHECK(input.sampling.min_p == 0.1f);
  CHECK(input.sampling.typical_p == 0.8f);
  CHECK(input.sampling.repetition_penalty == 1.1f);
  CHECK(input.sampling.presence_penalty == 0.2f);
  CHECK(input.sampling.frequency_penalty == -0.3f);
  CHECK(input.sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{2, -1.5f}, {9, 1.0f}});
  CHECK(input.seed == 18446744073709551615u);
  CHECK(input.stop_sequences == std::vector<std::string>{"a", "b"});
  CHECK(input.truncate_prompt_tokens == 5u);
  CHECK(input.ignore_eos);
  CHECK(input.priority == -4);
  CHECK_FALSE(input.add_special_tokens);
  CHECK(input.sampling.logprobs);
  CHECK(input.sampling.top_logprobs == 2);
}

TEST_CASE("TGI samples only when it is told to", "[router][fields]") {
  DoorsFixture fixture;
  size_t count = 0;
  const auto temperature = [&](const std::string& parameters) {
    fixture.Post("/generate", With(Body::kTgiParameters, parameters));
    return fixture.intake.WaitRequest(count++)->input().sampling.temperature;
  };
  CHECK(temperature("") == 0.0f);
  CHECK(temperature(R"("do_sample":false)") == 0.0f);
  CHECK(temperature(R"("temperature":1.0)") == 0.0f);
  CHECK(temperature(R"("do_sample":true)") == 1.0f);
  CHECK(temperature(R"("do_sample":true,"temperature":0.3)") == 0.3f);
  CHECK(temperature(R"("temperature":0.7)") == 0.7f);
  CHECK(temperature(R"("top_k":5)") == 1.0f);
  CHECK(temperature(R"("top_p":0.5,"do_sample":false)") == 1.0f);
  CHECK(temperature(R"("top_p":1.0,"top_k":0)") == 0.0f);
}

TEST_CASE("Prompts may be text or token ids", "[router][fields]") {
  DoorsFixture fixture;
  using Ids = std::vector<TokenId>;
  fixture.Post("/generate", R"({"inputs":[1,2,3],"parameters":{"return_full_text":true}})");
  CHECK(std::get<Ids>(fixture.intake.WaitRequest(0)->input().prompt) == Ids{1, 2, 3});
  CHECK(fixture.intake.WaitRequest(0)->input().echo_prompt);
  fixture.Post("/v1/completions", R"({"prompt":[4,5],"echo":true})");
  CHECK(std::get<Ids>(fixture.intake.WaitRequest(1)->input().prompt) == Ids{4, 5});
  CHECK(fixture.intake.WaitRequest(1)->input().echo_prompt);
  CHECK(fixture.intake.WaitRequest(1)->input().max_tokens == 16u);
  fixture.Post("/v1/completions", R"({"prompt":[[6]]})");
  CHECK(std::get<Ids>(fixture.intake.WaitRequest(2)->input().prompt) == Ids{6});
  fixture.Post("/v1/completions", R"({"prompt":["one"]})");
  CHECK(std::get<std::string>(fixture.intake.WaitRequest(3)->input().prompt) == "one");
}

TEST_CASE("Chat messages and OpenAI's parameters reach the engine", "[router][fields]") {
  DoorsFixture fixture;
  fixture.Post(
      "/v1/chat/completions",
      R"({"model":"fake/model","messages":[{"role":"developer","content":"s"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":"ok"}],"max_completion_tokens":9,"temperature":0,)"
      R"("top_k":-1,"seed":-1,"stop":"end","logprobs":true,"top_logprobs":4,)"
      R"("include_stop_str_in_output":true,"add_generation_prompt":false,)"
      R"("truncate_prompt_tokens":8})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  const auto& chat = std::get<ChatPrompt>(input.prompt);
  REQUIRE(chat.messages.size() == 3);
  CHECK(chat.messages[0].role == "system");
  CHECK(chat.messages[1].content == "a\nb");
  CHECK(chat.messages[2].role == "assistant");
  CHECK_FALSE(chat.add_generation_prompt);
  CHECK(input.max_tokens == 9u);
  CHECK(input.sampling.temperature == 0.0f);
  CHECK(input.sampling.top_k == 0);
  CHECK(input.seed == ~uint64_t{0});
  CHECK(input.stop_sequences == std::vector<std::string>{"end"});
  CHECK(input.include_stop_sequence);
  CHECK(input.sampling.logprobs);
  CHECK(input.sampling.top_logprobs == 4);
  CHECK(input.truncate_prompt_tokens == 8u);
  fixture.Post("/v1/chat/completions", With(Body::kChat, ""));
  const GenerateInput& plain = fixture.intake.WaitRequest(1)->input();
  CHECK(plain.sampling.temperature == 1.0f);
  CHECK_FALSE(plain.max_tokens.has_value());
  CHECK_FALSE(plain.seed.has_value());
}

TEST_CASE("Of duplicate keys the last one counts", "[router][fields]") {
  DoorsFixture fixture;
  fixture.Post("/v1/completions", R"({"prompt":"a","max_tokens":3,"max_tokens":4,"prompt":"b"})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(std::get<std::string>(input.prompt) == "b");
  CHECK(input.max_tokens == 4u);
}

}  // namespace
}  // namespace weft::router
