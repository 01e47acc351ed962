// Prompts that are scored: each token but the first once and in order, whatever chunks the prompt
// is cut into, beside prompts that are not scored, through preemptions and lost groups, and for
// several choices once. The shards' scores tell every position and every token before it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/errors.h"
#include "router/prompt_scores.h"
#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

using testing::MockFault;
using testing::MockMoment;

constexpr char kLosses[] = R"(weft_group_losses_total{state="serving"})";

GenerateInput Scored(uint64_t seed, size_t prompt_tokens, uint32_t max_tokens, uint32_t top = 0) {
  GenerateInput input = MakeInput(seed, prompt_tokens, max_tokens);
  input.prompt_logprobs = top;
  return input;
}

void CheckScores(const EngineRig& rig, const GenerateInput& input, const PromptScores* scores) {
  REQUIRE(scores != nullptr);
  const auto& prompt = std::get<std::vector<TokenId>>(input.prompt);
  REQUIRE(scores->tokens() == prompt.size());
  REQUIRE(scores->rows() + 1 == prompt.size());
  uint64_t chain = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const AnswerToken token = scores->Token(i);
    wrong += token.id != prompt[i] || token.has_logprob != (i > 0) ? 1 : 0;
    if (i > 0) {
      wrong += token.logprob != testing::MockScore(chain, token.id) ? 1 : 0;
      wrong += scores->Rank(i) != 1 + token.id ? 1 : 0;
      wrong += token.top.size() != *input.prompt_logprobs ? 1 : 0;
      for (uint32_t rank = 0; rank < token.top.size(); ++rank) {
        const TokenId best = testing::MockBest(rig.shape().vocabulary, chain, rank);
        wrong += token.top[rank].id != best ? 1 : 0;
      }
    }
    chain = testing::MockChain(chain, token.id);
  }
  CHECK(wrong == 0);
}

void CheckAnswer(const EngineRig& rig, FakeSink& sink, const GenerateInput& input) {
  sink.WaitEnd();
  INFO(sink.status().ToString());
  REQUIRE(sink.status().ok());
  CHECK(sink.ids() == rig.Expected(input));
  if (input.prompt_logprobs.has_value()) {
    CheckScores(rig, input, sink.started().prompt_scores.get());
  } else {
    CHECK(sink.started().prompt_scores == nullptr);
  }
}

TEST_CASE("A prompt is scored whatever chunks it is cut into", "[router][engine][scores]") {
  for (const uint32_t step_tokens : {1u, 7u, 16u, 64u, 512u}) {
    RigOptions options;
    options.shape.running_max = options.engine.running_max = 1;
    options.shape.step_tokens_max = options.engine.step_tokens_max = step_tokens;
    options.step_us = 0;
    EngineRig rig(options);
    rig.WaitReady();
    for (const size_t length : {1u, 2u, 16u, 65u}) {
      INFO("steps of " << step_tokens << " tokens, prompt of " << length);
      const GenerateInput input = Scored(length, length, 3, 2);
      CheckAnswer(rig, *rig.Submit(input), input);
    }
    rig.CheckClean();
  }
}

TEST_CASE("Prompts that are scored run beside others and take nothing from the cache",
          "[router][engine][scores]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  std::vector<GenerateInput> inputs;
  for (uint64_t i = 0; i < 24; ++i) {
    // The same prompts again and again.
    GenerateInput input = Scored(i % 3, 100, 20, static_cast<uint32_t>(i % 4));
    if (i % 2 == 1) input.prompt_logprobs.reset();
    inputs.push_back(std::move(input));
  }
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  for (size_t i = 0; i < inputs.size(); ++i) {
    CheckAnswer(rig, *sinks[i], inputs[i]);
    if (inputs[i].prompt_logprobs.has_value()) CHECK(sinks[i]->started().cached_tokens == 0);
  }
  // What they have computed is there for others.
  const GenerateInput again = MakeInput(0, 100, 5);
  auto sink = rig.Submit(again);
  CheckAnswer(rig, *sink, again);
  CHECK(sink->started().cached_tokens == 96);
  rig.CheckClean();
}

TEST_CASE("Prompts that are preempted are scored to their ends, each token once",
          "[router][engine][scores]") {
  RigOptions options = TwoShards();
  options.shape.kv_blocks = 40;  // of 16 tokens: too few for all that run
  EngineRig rig(options);
  const Grown grown(rig.probe(), {"weft_num_preemptions_total"});
  rig.WaitReady();
  std::vector<GenerateInput> inputs;
  for (uint64_t seed = 1; seed <= 16; ++seed) inputs.push_back(Scored(seed, 150, 100, 1));
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  for (size_t i = 0; i < inputs.size(); ++i) CheckAnswer(rig, *sinks[i], inputs[i]);
  CHECK(grown("weft_num_preemptions_total") > 0);
  rig.CheckClean();
}

TEST_CASE("A prompt whose group is lost goes on where its scores stood",
          "[router][engine][scores]") {
  for (const uint64_t lost_step : {1u, 3u, 5u}) {
    INFO("step " << lost_step << " is lost");
    RigOptions options = TwoShards();
    options.faults = [lost_step](Rank, const MockMoment& moment) {
      return moment.call == "Prefill" && moment.before == lost_step ? MockFault::kError
                                                                    : MockFault::kNone;
    };
    EngineRig rig(options);
    const Grown grown(rig.probe(), {kLosses});
    rig.WaitReady();
    const GenerateInput input = Scored(5, 400, 6, 3);
    CheckAnswer(rig, *rig.Submit(input), input);
    CHECK(grown(kLosses) == 1);
    rig.CheckClean();
  }
}

class Deaf : public AnswerSink {
 public:
  Waker* OnNews() override { return nullptr; }
};

TEST_CASE("A prompt of several choices is scored once", "[router][engine][scores]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  const GenerateInput input = Scored(7, 200, 5, 1);
  std::vector<Admission::Permit> permits;
  while (permits.size() < 3) {
    auto permit = rig.engine().Enter(Anonymous(), 0);
    REQUIRE(permit.ok());
    permits.push_back(*std::move(permit));
  }
  auto answers = rig.engine().SubmitChoices(input, std::move(permits), std::make_shared<Deaf>());
  REQUIRE(answers.ok());
  for (size_t i = 0; i < answers->size(); ++i) {
    Answer& answer = *(*answers)[i];
    EngineRig::WaitUntil("an answer ends", [&] {
      answer.Fetch();
      for (AnswerToken token; answer.Next(&token);) continue;
      return answer.end() != nullptr;
    });
    REQUIRE(answer.head() != nullptr);
    CHECK(answer.end()->output_tokens == 5);
    if (i == 0) {
      CheckScores(rig, input, answer.head()->prompt_scores.get());
    } else {
      CHECK(answer.head()->prompt_scores == nullptr);
      CHECK(answer.head()->cached_tokens == 192);
    }
  }
  answers->clear();
  rig.CheckClean();
}

TEST_CASE("A request may want its prompt alone", "[router][engine][scores]") {
  RigOptions options = TwoShards();
  // Whatever is sampled would end the answer otherwise.
  options.shape.vocabulary.eos_permille = 1000;
  EngineRig rig(options);
  rig.WaitReady();
  for (const bool scored : {true, false}) {
    GenerateInput input = Scored(3, 100, 0);
    if (!scored) input.prompt_logprobs.reset();
    input.echo_prompt = true;
    auto sink = rig.Submit(input);
    sink->WaitEnd();
    INFO(sink->status().ToString());
    REQUIRE(sink->status().ok());
    CHECK(sink->ids().empty());
    CHECK(sink->finished().output_tokens == 0);
    CHECK(sink->finished().prompt_tokens == 100);
    CHECK(sink->finished().reason == FinishReason::kLength);
    const std::vector<TokenId> prompt = MakePrompt(3, 100);
    CHECK(sink->text() == std::string(prompt.begin(), prompt.end()));
    if (scored) CheckScores(rig, input, sink->started().prompt_scores.get());
  }
  rig.CheckClean();
}

TEST_CASE("A request asks for so many scores and no more", "[router][engine][scores]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = Scored(3, 100, 2, 4);
  input.prompt_scores_max = 500;
  CheckAnswer(rig, *rig.Submit(input), input);
  input.prompt_scores_max = 499;
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  CHECK(absl::IsInvalidArgument(sink->status()));
  CHECK(ErrorField(sink->status()) == "prompt_logprobs");
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router
