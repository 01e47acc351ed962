// Requests that go on with an answer whose stream broke, at the HTTP doors: what they may say, and
// what their streams look like. (gRPC's are in grpc_test.cc.)

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

struct Route {
  const char* path;
  // A streaming body around a `resume`, and what stands before names in errors.
  const char* before;
  const char* after;
  const char* names;
  int refused;
};

constexpr Route kRoutes[] = {
    {"/generate_stream", R"({"inputs":"x","parameters":{"temperature":0.7,)", "}}", "parameters.",
     422},
    {"/v1/completions", R"({"prompt":"x","stream":true,)", "}", "", 400},
    {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true,)", "}",
     "", 400}};

std::string Body(const Route& route, const std::string& fields) {
  return absl::StrCat(route.before, fields, route.after);
}

StartedEvent Resumed(uint32_t tokens, bool exact = true) {
  StartedEvent event = Started();
  ResumedPart& part = event.head.resumed.emplace();
  part.tokens = tokens;
  part.last = 9;
  part.text = "Say ";
  part.token_characters = 4;
  part.exact = exact;
  return event;
}

TEST_CASE("What a client has had reaches the engine through every door", "[router][doors]") {
  DoorsFixture fixture;
  size_t index = 0;
  for (const Route& route : kRoutes) {
    INFO(route.path);
    const RawResponse response = fixture.Post(
        route.path,
        Body(route,
             R"("resume":{"output_ids":[5,9.0],"seed":18446744073709551615,"fingerprint":"f"})"));
    CHECK(response.status == 200);
    const auto request = fixture.intake.WaitRequest(index++);
    REQUIRE(request->input().resume.has_value());
    CHECK(request->input().resume->output_ids == std::vector<TokenId>{5, 9});
    CHECK(request->input().resume->fingerprint == "f");
    CHECK(request->input().seed == ~uint64_t{0});
    // The request's own seed is as good, and greedy requests need none.
    CHECK(fixture.Post(route.path, Body(route, R"("seed":7,"resume":{"output_ids":[5]})")).status ==
          200);
    CHECK(fixture.intake.WaitRequest(index++)->input().seed == 7);
    CHECK(fixture.Post(route.path, Body(route, R"("resume":{"output_ids":[]})")).status == 200);
    CHECK(fixture.intake.WaitRequest(index++)->input().resume->output_ids.empty());
    CHECK(fixture.Post(route.path, Body(route, R"("resume":null)")).status == 200);
    CHECK_FALSE(fixture.intake.WaitRequest(index++)->input().resume.has_value());
  }
  CHECK(
      fixture
          .Post("/generate_stream", R"({"inputs":"x","parameters":{"resume":{"output_ids":[5]}}})")
          .status == 200);
}

TEST_CASE("What cannot be resumed is refused by the name of its field", "[router][doors]") {
  DoorsFixture fixture;
  struct Bad {
    const char* fields;
    const char* name;
    const char* says;
  };
  const std::string long_name =
      absl::StrCat(R"("resume":{"output_ids":[],"fingerprint":")", std::string(129, 'f'), "\"}");
  const Bad kBad[] = {
      {R"("resume":[5])", "resume", "must be an object"},
      {R"("resume":{})", "resume.output_ids", "is required"},
      {R"("resume":{"output_ids":5,"seed":1})", "resume.output_ids", "must be an array"},
      {R"("resume":{"output_ids":["5"],"seed":1})", "resume.output_ids",
       "integers between 0 and 1048575; at index 0 is a string"},
      {R"("resume":{"output_ids":[1,-1],"seed":1})", "resume.output_ids", "at index 1 is -1"},
      {R"("resume":{"output_ids":[1048576],"seed":1})", "resume.output_ids",
       "between 0 and 1048575"},
      {R"("resume":{"output_ids":[5]})", "resume.seed",
       "is required where tokens are drawn (temperature of 0.0001 or more)"},
      {R"("resume":{"output_ids":[5],"seed":"1"})", "resume.seed", "-2^63 and 2^64 - 1"},
      {R"("seed":2,"resume":{"output_ids":[5],"seed":1})", "resume.seed", "is 1 and "},
      {R"("resume":{"output_ids":[5],"seed":1,"fingerprint":5})", "resume.fingerprint",
       "must be a string"},
      {long_name.c_str(), "resume.fingerprint", "must have at most 128 bytes, not 129"}};
  for (const Route& route : kRoutes) {
    for (const Bad& bad : kBad) {
      INFO(route.path << " " << bad.fields);
      const RawResponse response = fixture.Post(route.path, Body(route, bad.fields));
      CHECK(response.status == route.refused);
      INFO(response.body);
      CHECK(absl::StrContains(response.body, absl::StrCat("`", route.names, bad.name, "`: ")));
      CHECK(absl::StrContains(response.body, bad.says));
    }
    const RawResponse ignored =
        fixture.Post(route.path, Body(route, R"("resume":{"output_ids":[],"ids":[1]})"));
    CHECK(ignored.headers.at("x-weft-ignored-fields") == absl::StrCat(route.names, "resume.ids"));
  }
}

TEST_CASE("Only a stream can be resumed", "[router][doors]") {
  DoorsFixture fixture;
  const std::string resume = R"("resume":{"output_ids":[5],"seed":1})";
  const auto refused = [&](const std::string& path, const std::string& body,
                           const std::string& name) {
    INFO(path);
    const RawResponse response = fixture.Post(path, body);
    CHECK(response.status >= 400);
    CHECK(absl::StrContains(response.body, absl::StrCat("`", name, "`: is for streams")));
  };
  refused("/generate", R"({"inputs":"x","parameters":{)" + resume + "}}", "parameters.resume");
  refused("/", R"({"inputs":"x","parameters":{)" + resume + "}}", "parameters.resume");
  refused("/v1/completions", R"({"prompt":"x",)" + resume + "}", "resume");
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("TGI's resumed stream counts on and ends with the whole text", "[router][tgi]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(
      {{Resumed(2)},
       {Token(10, "Hello"), Token(11, " world"), Finished(FinishReason::kLength, 4)}});
  const RawResponse response = fixture.Post(
      "/generate_stream", Body(kRoutes[0], R"("resume":{"output_ids":[5,9],"seed":42})"));
  CHECK(response.headers.at("x-weft-fingerprint") == "weft-V");
  CHECK(response.headers.at("x-weft-resume") == "exact");
  CHECK(response.body ==
        R"(data: {"index":3,"token":{"id":10,"text":"Hello","logprob":null,"special":false},)"
        R"("generated_text":null,"details":null,"resume":{"seed":42,"fingerprint":"weft-V"},)"
        R"("resumed":"exact"})"
        "\n\n"
        R"(data: {"index":4,"token":{"id":11,"text":" world","logprob":null,"special":false},)"
        R"("generated_text":"Say Hello world","details":{"finish_reason":"length",)"
        R"("generated_tokens":4,"seed":42,"input_length":3}})"
        "\n\n");
}

TEST_CASE("TGI names the last token again for who had the whole answer", "[router][tgi]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{Resumed(2, false), Finished(FinishReason::kLength, 2, "so")}});
  const RawResponse response = fixture.Post(
      "/generate_stream", Body(kRoutes[0], R"("resume":{"output_ids":[5,9],"seed":42})"));
  CHECK(response.headers.at("x-weft-resume") == "inexact");
  CHECK(response.body ==
        R"(data: {"index":2,"token":{"id":9,"text":"so","logprob":null,"special":false},)"
        R"("generated_text":"Say so","details":{"finish_reason":"length","generated_tokens":2,)"
        R"("seed":42,"input_length":3},"resume":{"seed":42,"fingerprint":"weft-V"},)"
        R"("resumed":"inexact"})"
        "\n\n");
}

TEST_CASE("OpenAI's chunks carry ids where they are asked for, and the first one how to go on",
          "[router][openai]") {
  DoorsFixture fixture;
  const std::string ids = R"("return_token_ids":true)";
  const RawResponse chat = fixture.Post("/v1/chat/completions", Body(kRoutes[2], ids));
  CHECK(chat.headers.at("x-weft-fingerprint") == "weft-V");
  CHECK(chat.headers.count("x-weft-resume") == 0);
  CHECK(absl::StrContains(
      chat.body,
      R"("choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"logprobs":null,)"
      R"("finish_reason":null,"token_ids":[10]}],"resume":{"seed":42,"fingerprint":"weft-V"}})"));
  CHECK(absl::StrContains(chat.body, R"("delta":{"content":" world"},"logprobs":null,)"
                                     R"("finish_reason":"length","token_ids":[11]}]})"));
  const RawResponse whole = fixture.Post("/v1/completions", R"({"prompt":"x",)" + ids + "}");
  CHECK(whole.headers.at("x-weft-fingerprint") == "weft-V");
  CHECK(absl::StrContains(whole.body, R"("finish_reason":"length","token_ids":[10,11]}])"));
  // Nobody asked: a chunk is as plain as before.
  const RawResponse plain = fixture.Post("/v1/completions", Body(kRoutes[1], R"("seed":1)"));
  CHECK_FALSE(absl::StrContains(plain.body, "token_ids"));
  CHECK_FALSE(absl::StrContains(plain.body, "resume"));
}

TEST_CASE("OpenAI's resumed stream goes on with counts and offsets, without another role",
          "[router][openai]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(
      {{Resumed(2)}, {TokenWithLogprob(10, "Hello", -0.5f), Finished(FinishReason::kLength, 3)}});
  const std::string resume =
      R"("return_token_ids":true,"stream_options":{"continuous_usage_stats":true},)"
      R"("resume":{"output_ids":[5,9],"seed":42},"logprobs":)";
  const RawResponse chat = fixture.Post("/v1/chat/completions", Body(kRoutes[2], resume + "true"));
  CHECK(chat.headers.at("x-weft-resume") == "exact");
  CHECK(absl::StrContains(chat.body, R"("delta":{"content":"Hello"})"));
  CHECK(absl::StrContains(chat.body, R"("completion_tokens":3)"));
  CHECK(absl::StrContains(chat.body, R"("resumed":"exact")"));
  const RawResponse completion = fixture.Post("/v1/completions", Body(kRoutes[1], resume + "0"));
  CHECK(absl::StrContains(completion.body, R"("text_offset":[4])"));
}

TEST_CASE("Pages of other origins may read what they need to resume", "[router][doors]") {
  HttpServerOptions http;
  http.cors_origins = {"*"};
  DoorsFixture fixture(http);
  const RawResponse response =
      Fetch(fixture.port(),
            PostText("/generate_stream", R"({"inputs":"Hi"})", "origin: https://page.example\r\n"));
  const std::string exposed = response.headers.at("access-control-expose-headers");
  CHECK(absl::StrContains(exposed, "x-weft-fingerprint"));
  CHECK(absl::StrContains(exposed, "x-weft-resume"));
}

}  // namespace
}  // namespace weft::router
