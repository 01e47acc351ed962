// Requests that go on with an answer whose stream broke: at every point where it may have broken
// the rest is what would have come, to the last byte, number and word.

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/errors.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

// What a client saw of a whole stream.
struct Seen {
  AnswerHead head;
  std::vector<AnswerToken> tokens;
  AnswerEnd end;
};

Seen Ask(EngineRig& rig, const GenerateInput& input) {
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  INFO(sink->status());
  REQUIRE(sink->status().ok());
  return {sink->started(), sink->tokens(), sink->finished()};
}

// The request of a client whose stream broke behind `count` tokens.
GenerateInput ResumeAt(const GenerateInput& input, const Seen& whole, size_t count) {
  GenerateInput again = input;
  again.seed = whole.head.seed;
  again.resume.emplace();
  again.resume->fingerprint = whole.head.fingerprint;
  for (size_t i = 0; i < count; ++i) again.resume->output_ids.push_back(whole.tokens[i].id);
  return again;
}

void CheckRest(const Seen& whole, size_t count, const Seen& rest) {
  INFO("behind token " << count << " of " << whole.tokens.size());
  std::string before;
  for (size_t i = 0; i < count; ++i) before += whole.tokens[i].text;
  REQUIRE(rest.head.resumed.has_value());
  CHECK(rest.head.resumed->tokens == count);
  CHECK(rest.head.resumed->text == before);
  CHECK(rest.head.resumed->exact);
  CHECK(rest.head.prompt_tokens == whole.head.prompt_tokens);
  CHECK(rest.head.cached_tokens <= rest.head.prompt_tokens);
  CHECK(rest.head.seed == whole.head.seed);
  CHECK(rest.head.fingerprint == whole.head.fingerprint);
  REQUIRE(rest.tokens.size() == whole.tokens.size() - count);
  for (size_t i = 0; i < rest.tokens.size(); ++i) {
    const AnswerToken& expected = whole.tokens[count + i];
    CHECK(rest.tokens[i].id == expected.id);
    CHECK(rest.tokens[i].text == expected.text);
    CHECK(rest.tokens[i].has_logprob == expected.has_logprob);
    CHECK(rest.tokens[i].logprob == expected.logprob);
  }
  CHECK(rest.end.reason == whole.end.reason);
  CHECK(rest.end.text == whole.end.text);
  CHECK(rest.end.stop_sequence == whole.end.stop_sequence);
  CHECK(rest.end.prompt_tokens == whole.end.prompt_tokens);
  CHECK(rest.end.output_tokens == whole.end.output_tokens);
  CHECK(rest.end.seed == whole.end.seed);
}

// Breaks the stream behind each of its tokens, before the first and behind the last too.
Seen CheckEveryCut(EngineRig& rig, const GenerateInput& input) {
  const Seen whole = Ask(rig, input);
  for (size_t count = 0; count <= whole.tokens.size(); ++count) {
    CheckRest(whole, count, Ask(rig, ResumeAt(input, whole, count)));
  }
  return whole;
}

std::string TextOf(const Seen& seen) {
  std::string text;
  for (const AnswerToken& token : seen.tokens) text += token.text;
  return text + seen.end.text;
}

TEST_CASE("A resumed answer goes on with the tokens that would have come, wherever it broke",
          "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = MakeInput(7, 40, 33);
  SECTION("greedy, without a seed") { input.sampling.temperature = 0; }
  SECTION("drawn, with the seed that was drawn") { input.sampling.temperature = 1; }
  SECTION("with penalties and log-probabilities") {
    input.seed = ~uint64_t{0};
    input.sampling.presence_penalty = 0.5f;
    input.sampling.frequency_penalty = -0.5f;
    input.sampling.logprobs = true;
    input.sampling.top_logprobs = 2;
  }
  SECTION("with the prompt in front") { input.echo_prompt = true; }
  const Seen whole = CheckEveryCut(rig, input);
  CHECK(whole.tokens.size() == 33);
  CHECK(whole.end.reason == FinishReason::kLength);
  CHECK(absl::StartsWith(whole.head.fingerprint, "weft-"));
  rig.CheckClean();
}

TEST_CASE("A stop string that began before the border is found behind it", "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = MakeInput(8, 30, 40);
  const std::string text = TextOf(Ask(rig, input));
  // Six letters in the middle, and one that begins like them and never comes.
  const std::string stop = text.substr(17, 6);
  REQUIRE(text.find(stop) == 17);
  input.stop_sequences = {text.substr(12, 4) + "!", stop};
  SECTION("left out of the text") {}
  SECTION("kept in the text") { input.include_stop_sequence = true; }
  const Seen whole = CheckEveryCut(rig, input);
  CHECK(whole.tokens.size() == 23);
  CHECK(whole.end.reason == FinishReason::kStopSequence);
  CHECK(whole.end.stop_sequence == stop);
  rig.CheckClean();
}

TEST_CASE("What was held back for a stop string that never came is delivered once",
          "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = MakeInput(9, 30, 20);
  const std::string text = TextOf(Ask(rig, input));
  input.stop_sequences = {text.substr(15) + "!"};
  const Seen whole = CheckEveryCut(rig, input);
  CHECK(whole.end.text == text.substr(15));
  CHECK(TextOf(whole) == text);
}

TEST_CASE("Characters that the border cuts are whole behind it", "[router][engine]") {
  RigOptions options = TwoShards();
  // Ends and beginnings of characters of two and three bytes, in any order.
  options.shape.vocabulary.first = 0xA0;
  options.shape.vocabulary.count = 0x48;
  EngineRig rig(options);
  rig.WaitReady();
  GenerateInput input = MakeInput(10, 20, 60);
  SECTION("without a stop string") {}
  SECTION("while a stop string of such a character may come") {
    input.stop_sequences = {"\xC3\xA4\xC3\xB6!",
                            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"};
  }
  const Seen whole = CheckEveryCut(rig, input);
  const auto silent = std::count_if(whole.tokens.begin(), whole.tokens.end(),
                                    [](const AnswerToken& token) { return token.text.empty(); });
  CHECK(silent > 5);
}

TEST_CASE("An answer that the model ended is ended at once for who had all of it",
          "[router][engine]") {
  RigOptions options = TwoShards();
  options.shape.vocabulary.eos_permille = 60;
  EngineRig rig(options);
  rig.WaitReady();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    GenerateInput input = MakeInput(20 + seed, 20, 60);
    input.ignore_eos = seed == 3;
    const Seen whole = CheckEveryCut(rig, input);
    INFO("answer " << seed << " of " << whole.tokens.size());
    CHECK((whole.end.reason == FinishReason::kEosToken) ==
          (whole.tokens.size() < 60 || whole.tokens.back().id == 256));
  }
  rig.CheckClean();
}

TEST_CASE("Who had the whole answer costs the shards nothing", "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  const GenerateInput input = MakeInput(11, 20, 10);
  const Seen whole = Ask(rig, input);
  const Grown grown(rig.probe(), {"weft_steps_total{kind=\"prefill\"}",
                                  "weft_requests_resumed_total{match=\"exact\"}"});
  CheckRest(whole, 10, Ask(rig, ResumeAt(input, whole, 10)));
  CHECK(grown("weft_steps_total{kind=\"prefill\"}") == 0);
  CHECK(grown("weft_requests_resumed_total{match=\"exact\"}") == 1);
}

TEST_CASE("Tokens that were there before count as prompt, not as generated", "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  const GenerateInput input = MakeInput(12, 20, 30);
  const Seen whole = Ask(rig, input);
  const Grown grown(rig.probe(), {"weft_prompt_tokens_total", "weft_generation_tokens_total"});
  CheckRest(whole, 25, Ask(rig, ResumeAt(input, whole, 25)));
  CHECK(grown("weft_prompt_tokens_total") == 45);
  CHECK(grown("weft_generation_tokens_total") == 5);
}

TEST_CASE("A resumed stream survives the loss of its shards", "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = MakeInput(13, 30, 200);
  input.sampling.presence_penalty = 0.5f;
  const Seen whole = Ask(rig, input);
  const Grown grown(rig.probe(), {"weft_group_losses_total{state=\"serving\"}"});
  auto sink = rig.Submit(ResumeAt(input, whole, 20));
  sink->WaitTokens(5);
  rig.RestartShard(1);
  sink->WaitEnd();
  REQUIRE(sink->status().ok());
  CHECK(grown("weft_group_losses_total{state=\"serving\"}") == 1);
  CheckRest(whole, 20, {sink->started(), sink->tokens(), sink->finished()});
}

TEST_CASE("Under another fingerprint an answer goes on and says that it may differ",
          "[router][engine]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  const GenerateInput input = MakeInput(14, 20, 30);
  const Seen whole = Ask(rig, input);
  GenerateInput again = ResumeAt(input, whole, 12);
  SECTION("another") { again.resume->fingerprint.back() ^= 1; }
  SECTION("none") { again.resume->fingerprint.clear(); }
  const Grown grown(rig.probe(), {"weft_requests_resumed_total{match=\"inexact\"}"});
  Seen rest = Ask(rig, again);
  CHECK_FALSE(rest.head.resumed->exact);
  CHECK(grown("weft_requests_resumed_total{match=\"inexact\"}") == 1);
  rest.head.resumed->exact = true;
  CheckRest(whole, 12, rest);  // the mock's tokens depend on nothing else
}

TEST_CASE("Ids that cannot be the beginning of the answer are refused with their place",
          "[router][engine]") {
  RigOptions options = TwoShards();
  EngineRig rig(options);
  rig.WaitReady();
  GenerateInput input = MakeInput(15, 20, 30);
  const Seen whole = Ask(rig, input);
  GenerateInput again = ResumeAt(input, whole, 12);
  std::string expected;
  SECTION("an id that the model has not") {
    again.resume->output_ids[3] = 257;
    expected = "token id 257 at position 3 is not below the vocabulary size 257";
  }
  SECTION("more than the answer may have") {
    again.max_tokens = 11;
    expected = "has 12 ids; the answer has at most 11 tokens";
  }
  SECTION("more than the context leaves") {
    again.max_tokens.reset();
    again.resume->output_ids.assign(2000, 97);
    expected = "has 2000 ids; the answer has at most 1004 tokens";
  }
  SECTION("ids behind the end of the text") {
    again.resume->output_ids[4] = 256;
    expected =
        "goes on for 7 ids behind token 256 at position 4, which ends the answer (eos_token)";
  }
  SECTION("ids behind a stop string") {
    again.stop_sequences = {whole.tokens[6].text + whole.tokens[7].text};
    expected = "which ends the answer (stop_sequence)";
  }
  auto sink = rig.Submit(again);
  sink->WaitEnd();
  INFO(sink->status());
  CHECK(absl::IsInvalidArgument(sink->status()));
  CHECK(ErrorField(sink->status()) == "resume.output_ids");
  CHECK(absl::StrContains(sink->status().message(), expected));
  rig.CheckClean();
}

TEST_CASE("A drawn seed is a whole number in every reader of JSON", "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  for (uint64_t i = 0; i < 8; ++i) {
    CHECK(Ask(rig, MakeInput(30 + i, 5, 1)).head.seed < uint64_t{1} << 53);
  }
}

}  // namespace
}  // namespace weft::router
