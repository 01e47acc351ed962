// What the HTTP doors and gRPC make of a prompt's scores: TGI's prefill, OpenAI's echo with
// log-probabilities, vLLM's prompt_logprobs, and the fields that ask for them.

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "router/errors.h"
#include "router/prompt_scores.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

class Letters : public TokenTable {
 public:
  absl::string_view Bytes(TokenId id) const override {
    static const std::string letters = "abcdefghij";
    return absl::string_view(letters).substr(id, 1);
  }
  bool IsSpecial(TokenId) const override { return false; }
};

// "ade": of d the best are d and g, of e they are b and c.
StartedEvent Scored(uint32_t top) {
  static const Letters letters;
  auto scores = std::make_shared<PromptScores>(std::vector<TokenId>{0, 3, 4}, top, &letters);
  using Best = std::vector<std::pair<TokenId, float>>;
  Best first = {{3, -0.5f}, {6, -2}};
  Best second = {{1, -0.25f}, {2, -4}};
  first.resize(std::min<size_t>(top, 2));
  second.resize(std::min<size_t>(top, 2));
  scores->Add(-0.5f, 1, first);
  scores->Add(-8, 5, second);
  StartedEvent started = Started(3, 0);
  started.head.prompt_scores = std::move(scores);
  return started;
}

std::string Answer(const DoorsFixture& fixture, const std::string& path, const std::string& body) {
  const RawResponse response = fixture.Post(path, body);
  INFO(response.body);
  REQUIRE(response.status == 200);
  return response.body;
}

std::string Text(const boost::json::value& value) { return boost::json::serialize(value); }

TEST_CASE("Completions with an echo begin with the prompt's log-probabilities",
          "[router][prompt_scores]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{Scored(2), TokenWithLogprob(5, "ade f", -1, {{5, -1, "f"}}),
                             Finished(FinishReason::kLength, 1)}});
  const auto body = boost::json::parse(
      Answer(fixture, "/v1/completions", R"({"prompt":"ade","echo":true,"logprobs":2})"));
  const boost::json::value& logprobs = body.at("choices").at(0).at("logprobs");
  CHECK(Text(logprobs.at("token_logprobs")) == "[null,-5E-1,-8,-1]");
  CHECK(logprobs.at("tokens").as_array().size() == 4);
  CHECK(logprobs.at("tokens").at(1) == "d");
  CHECK(Text(logprobs.at("text_offset")) == "[0,1,2,3]");
  const boost::json::array& top = logprobs.at("top_logprobs").as_array();
  REQUIRE(top.size() == 4);
  CHECK(top[0].is_null());
  CHECK(Text(top[1]) == R"({"d":-5E-1,"g":-2})");
  // The prompt's own token, too.
  CHECK(Text(top[2]) == R"({"b":-2.5E-1,"c":-4,"e":-8})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(input.prompt_logprobs == 2u);
  CHECK(input.prompt_scores_max == kPromptScoresMax);
}

TEST_CASE("A completion may be its prompt alone", "[router][prompt_scores]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{Scored(0), Finished(FinishReason::kLength, 0, "ade")}});
  const auto body = boost::json::parse(Answer(
      fixture, "/v1/completions", R"({"prompt":"ade","echo":true,"logprobs":0,"max_tokens":0})"));
  const boost::json::value& choice = body.at("choices").at(0);
  CHECK(choice.at("text") == "ade");
  CHECK(choice.at("finish_reason") == "length");
  CHECK(Text(choice.at("logprobs").at("token_logprobs")) == "[null,-5E-1,-8]");
  CHECK(choice.at("logprobs").at("top_logprobs").is_null());
  CHECK(body.at("usage").at("completion_tokens") == 0);
  CHECK(fixture.intake.WaitRequest(0)->input().max_tokens == 0u);
}

TEST_CASE("Each choice begins with the scores of its prompt", "[router][prompt_scores]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  auto posted = std::async(std::launch::async, [&fixture] {
    return Answer(fixture, "/v1/completions",
                  R"({"prompt":["ade","b"],"n":2,"echo":true,"logprobs":0,"max_tokens":1})");
  });
  for (size_t i = 0; i < 4; ++i) {
    auto request = fixture.intake.WaitRequest(i);
    REQUIRE(request != nullptr);
    // The first of each prompt's choices has them for both.
    request->Send({i == 0 ? Scored(0) : Started(), TokenWithLogprob(5, "x", -1),
                   Finished(FinishReason::kLength, 1)});
    CHECK(request->input().prompt_scores_max == kPromptScoresMax / 2);
  }
  const auto body = boost::json::parse(posted.get());
  for (const size_t i : {0, 1, 2, 3}) {
    const boost::json::value& logprobs = body.at("choices").at(i).at("logprobs");
    CHECK(logprobs.at("tokens").as_array().size() == (i < 2 ? 4 : 1));
  }
}

TEST_CASE("prompt_logprobs are those of vLLM", "[router][prompt_scores]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{Scored(2), Token(5, "x"), Finished(FinishReason::kLength, 1)}});
  const std::string expected = R"([null,{"3":{"logprob":-5E-1,"rank":1,"decoded_token":"d"},)"
                               R"("6":{"logprob":-2,"rank":2,"decoded_token":"g"}},)"
                               R"({"4":{"logprob":-8,"rank":5,"decoded_token":"e"},)"
                               R"("1":{"logprob":-2.5E-1,"rank":1,"decoded_token":"b"},)"
                               R"("2":{"logprob":-4,"rank":2,"decoded_token":"c"}}])";
  const auto completion = boost::json::parse(
      Answer(fixture, "/v1/completions", R"({"prompt":"ade","prompt_logprobs":2})"));
  CHECK(Text(completion.at("choices").at(0).at("prompt_logprobs")) == expected);
  CHECK(completion.at("choices").at(0).at("logprobs").is_null());
  const auto chat = boost::json::parse(
      Answer(fixture, "/v1/chat/completions",
             R"({"messages":[{"role":"user","content":"x"}],"prompt_logprobs":2})"));
  CHECK(Text(chat.at("prompt_logprobs")) == expected);
  CHECK(fixture.intake.WaitRequest(0)->input().prompt_logprobs == 2u);
  // Of both that ask, the one that wants more decides what is computed.
  fixture.Post("/v1/completions",
               R"({"prompt":"ade","prompt_logprobs":1,"echo":true,"logprobs":2})");
  CHECK(fixture.intake.WaitRequest(2)->input().prompt_logprobs == 2u);
}

TEST_CASE("decoder_input_details are TGI's prefill", "[router][prompt_scores]") {
  DoorsFixture fixture;
  fixture.intake.SetScript(
      {{Scored(0), TokenWithLogprob(5, "x", -1), Finished(FinishReason::kLength, 1)}});
  const auto body = boost::json::parse(Answer(
      fixture, "/generate", R"({"inputs":"ade","parameters":{"decoder_input_details":true}})"));
  CHECK(Text(body.at("details").at("prefill")) ==
        R"([{"id":0,"text":"a","logprob":null},{"id":3,"text":"d","logprob":-5E-1},)"
        R"({"id":4,"text":"e","logprob":-8}])");
  CHECK(body.at("details").at("tokens").as_array().size() == 1);
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(input.prompt_logprobs == 0u);
  CHECK(input.sampling.logprobs);
  fixture.Post("/generate", R"({"inputs":"ade","parameters":{"details":true}})");
  CHECK_FALSE(fixture.intake.WaitRequest(1)->input().prompt_logprobs.has_value());
}

TEST_CASE("Too many scores are refused by the field that asked for them",
          "[router][prompt_scores]") {
  DoorsFixture fixture;
  fixture.intake.SetScript({{FailedEvent{FieldError("prompt_logprobs", "asks for too many")}}});
  const auto field = [&fixture](const std::string& path, const std::string& body) {
    const RawResponse response = fixture.Post(path, body);
    CHECK((response.status == 400 || response.status == 422));
    return response.body;
  };
  CHECK_THAT(field("/v1/completions", R"({"prompt":"a","echo":true,"logprobs":1})"),
             Catch::Contains(R"("param":"logprobs")"));
  CHECK_THAT(field("/v1/completions", R"({"prompt":"a","prompt_logprobs":1})"),
             Catch::Contains(R"("param":"prompt_logprobs")"));
  CHECK_THAT(field("/generate", R"({"inputs":"a","parameters":{"decoder_input_details":true}})"),
             Catch::Contains("parameters.decoder_input_details"));
}

}  // namespace
}  // namespace weft::router
