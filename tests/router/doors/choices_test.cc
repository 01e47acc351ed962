// Several answers to one request: n, best_of and several prompts, whole and streamed, on the HTTP
// doors; and what becomes of them when one fails or their client leaves.

#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "boost/json/parse.hpp"
#include "boost/json/value.hpp"
#include "router/errors.h"
#include "tests/router/anonymous.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

boost::json::value Parsed(const RawResponse& response) {
  INFO(response.body);
  REQUIRE(response.status == 200);
  return boost::json::parse(response.body);
}

std::string TextOf(const boost::json::value& choice) {
  return std::string(choice.at("text").as_string());
}

TEST_CASE("Each choice of each prompt is an answer of its own", "[router][choices]") {
  DoorsFixture fixture;
  const boost::json::value body =
      Parsed(fixture.Post("/v1/completions", R"({"prompt":["a",[1,2]],"n":2,"max_tokens":4})"));
  REQUIRE(fixture.intake.request_count() == 4);
  // The choices of a prompt come first.
  for (size_t i : {0, 1}) {
    CHECK(std::get<std::string>(fixture.intake.WaitRequest(i)->input().prompt) == "a");
  }
  for (size_t i : {2, 3}) {
    CHECK(std::get<std::vector<TokenId>>(fixture.intake.WaitRequest(i)->input().prompt) ==
          std::vector<TokenId>{1, 2});
  }
  const boost::json::array& choices = body.at("choices").as_array();
  REQUIRE(choices.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(choices[i].at("index").as_int64() == static_cast<int64_t>(i));
    CHECK(TextOf(choices[i]) == "Hello world");
  }
  // Each prompt once, every answer.
  CHECK(body.at("usage").at("prompt_tokens").as_int64() == 6);
  CHECK(body.at("usage").at("completion_tokens").as_int64() == 8);
}

TEST_CASE("The best of several answers are given, and all are counted", "[router][choices]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  auto posted = std::async(std::launch::async, [&fixture] {
    return fixture.Post("/v1/completions", R"({"prompt":"a","best_of":3,"n":2})");
  });
  for (size_t i = 0; i < 3; ++i) {
    auto request = fixture.intake.WaitRequest(i);
    REQUIRE(request != nullptr);
    // Which is best their log-probabilities say.
    CHECK(request->input().sampling.logprobs);
    const float logprob = i == 0 ? -3.0f : i == 1 ? -1.0f : -2.0f;
    request->Send({Started(),
                   TokenWithLogprob(10 + static_cast<TokenId>(i),
                                    std::string(1, static_cast<char>('x' + i)), logprob),
                   Finished(FinishReason::kLength, 1)});
  }
  const boost::json::value body = Parsed(posted.get());
  const boost::json::array& choices = body.at("choices").as_array();
  REQUIRE(choices.size() == 2);
  CHECK(TextOf(choices[0]) == "y");
  CHECK(TextOf(choices[1]) == "z");
  CHECK(choices[1].at("index").as_int64() == 1);
  // They were not asked for.
  CHECK(choices[0].at("logprobs").is_null());
  CHECK(body.at("usage").at("completion_tokens").as_int64() == 3);
}

TEST_CASE("TGI's best_of gives the best answer, and the others in its details",
          "[router][choices]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  auto posted = std::async(std::launch::async, [&fixture] {
    return fixture.Post("/generate", R"({"inputs":"a","parameters":{"best_of":2,"details":true}})");
  });
  for (size_t i = 0; i < 2; ++i) {
    auto request = fixture.intake.WaitRequest(i);
    REQUIRE(request != nullptr);
    request->Send(
        {Started(),
         TokenWithLogprob(10 + static_cast<TokenId>(i), std::string(1, static_cast<char>('x' + i)),
                          i == 0 ? -3.f : -1.f),
         Finished(FinishReason::kLength, 1)});
  }
  const boost::json::value body = Parsed(posted.get());
  CHECK(body.at("generated_text").as_string() == "y");
  const boost::json::array& others = body.at("details").at("best_of_sequences").as_array();
  REQUIRE(others.size() == 1);
  CHECK(others[0].at("generated_text").as_string() == "x");
  CHECK(others[0].at("finish_reason").as_string() == "length");
}

TEST_CASE("A stream of several choices says whose each event is, and ends once",
          "[router][choices]") {
  DoorsFixture fixture;
  const RawResponse response = fixture.Post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}],"n":2,"stream":true,)"
                              R"("stream_options":{"include_usage":true}})");
  REQUIRE(response.status == 200);
  std::string texts[2];
  int roles = 0;
  int ends = 0;
  int usages = 0;
  int done = 0;
  for (size_t at = 0; (at = response.body.find("data: ", at)) != std::string::npos;) {
    const size_t end = response.body.find("\n\n", at);
    const std::string event = response.body.substr(at + 6, end - at - 6);
    at = end;
    if (event == "[DONE]") {
      ++done;
      continue;
    }
    const boost::json::value chunk = boost::json::parse(event);
    if (chunk.at("choices").as_array().empty()) {
      ++usages;
      CHECK(ends == 2);
      CHECK(chunk.at("usage").at("completion_tokens").as_int64() == 4);
      CHECK(chunk.at("usage").at("prompt_tokens").as_int64() == 3);
      continue;
    }
    const boost::json::value& choice = chunk.at("choices").at(0);
    const auto index = static_cast<size_t>(choice.at("index").as_int64());
    REQUIRE(index < 2);
    const boost::json::object& delta = choice.at("delta").as_object();
    roles += delta.contains("role") ? 1 : 0;
    if (delta.contains("content")) texts[index] += std::string(delta.at("content").as_string());
    ends += choice.at("finish_reason").is_null() ? 0 : 1;
  }
  CHECK(texts[0] == "Hello world");
  CHECK(texts[1] == "Hello world");
  CHECK(roles == 2);
  CHECK(ends == 2);
  CHECK(usages == 1);
  CHECK(done == 1);
}

TEST_CASE("One choice that fails fails the request, and the others are cancelled",
          "[router][choices]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  auto posted = std::async(std::launch::async, [&fixture] {
    return fixture.Post("/v1/completions", R"({"prompt":"a","n":3})");
  });
  for (size_t i = 0; i < 3; ++i) REQUIRE(fixture.intake.WaitRequest(i) != nullptr);
  fixture.intake.WaitRequest(1)->Send({FailedEvent{absl::InternalError("lost")}});
  const RawResponse response = posted.get();
  CHECK(response.status == 500);
  CHECK(absl::StrContains(response.body, "lost"));
  CHECK(fixture.intake.WaitRequest(0)->WaitCancelled().has_value());
  CHECK(fixture.intake.WaitRequest(2)->WaitCancelled().has_value());
}

TEST_CASE("All choices come in or none does", "[router][choices]") {
  DoorsFixture fixture;
  // Others leave room for three.
  std::vector<Admission::Permit> others;
  while (others.size() + 3 < fixture.intake.admission().requests_max()) {
    auto permit = fixture.intake.Enter(Anonymous(), 0);
    REQUIRE(permit.ok());
    others.push_back(*std::move(permit));
  }
  const RawResponse refused = fixture.Post("/v1/completions", R"({"prompt":"a","n":4})");
  CHECK(refused.status == 429);
  CHECK(fixture.intake.request_count() == 0);
  // Their permits are back.
  CHECK(Parsed(fixture.Post("/v1/completions", R"({"prompt":"a","n":3})"))
            .at("choices")
            .as_array()
            .size() == 3);
}

}  // namespace
}  // namespace weft::router
