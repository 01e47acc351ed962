// Several choices of one prompt: the others wait for the first one's prompt and take its blocks;
// each has tokens of its own; and none is forgotten when one ends early.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/router/anonymous.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

using testing::MockFault;
using testing::MockMoment;

class Deaf : public AnswerSink {
 public:
  Waker* OnNews() override { return nullptr; }
};

std::vector<std::shared_ptr<Answer>> SubmitChoices(EngineRig& rig, const GenerateInput& input,
                                                   size_t choices) {
  std::vector<Admission::Permit> permits;
  while (permits.size() < choices) {
    auto permit = rig.engine().Enter(Anonymous(), 0);
    REQUIRE(permit.ok());
    permits.push_back(*std::move(permit));
  }
  auto answers = rig.engine().SubmitChoices(input, std::move(permits), std::make_shared<Deaf>());
  REQUIRE(answers.ok());
  return *std::move(answers);
}

struct Whole {
  std::vector<TokenId> ids;
  AnswerHead head;
  AnswerEnd end;
};

Whole WaitEnd(Answer& answer) {
  Whole whole;
  EngineRig::WaitUntil("an answer ends", [&] {
    answer.Fetch();
    for (AnswerToken token; answer.Next(&token);) whole.ids.push_back(token.id);
    return answer.end() != nullptr;
  });
  if (answer.head() != nullptr) whole.head = *answer.head();
  whole.end = *answer.end();
  return whole;
}

TEST_CASE("Choices find the first one's prompt in the prefix cache and draw for themselves",
          "[router][engine][choices]") {
  RigOptions options;
  options.shape.step_tokens_max = 64;
  EngineRig rig(options);
  rig.WaitReady();
  const GenerateInput input = MakeInput(7, 200, 12);
  auto answers = SubmitChoices(rig, input, 4);
  std::set<uint64_t> seeds;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Whole whole = WaitEnd(*answers[i]);
    CHECK(whole.end.status.ok());
    CHECK(whole.head.prompt_tokens == 200);
    // All whole blocks but one with the last token.
    CHECK(whole.head.cached_tokens == (i == 0 ? 0 : 192));
    seeds.insert(whole.head.seed);
    // Each is what a request of its seed gives alone.
    GenerateInput alone = input;
    alone.seed = whole.head.seed;
    CHECK(whole.ids == rig.Expected(alone));
  }
  CHECK(seeds.size() == 4);
  CHECK(seeds.count(7) == 1);
  // The same request draws the same seeds, that of the next seed none of them.
  for (auto& answer : SubmitChoices(rig, input, 4)) {
    CHECK(seeds.count(WaitEnd(*answer).head.seed) == 1);
  }
  for (auto& answer : SubmitChoices(rig, MakeInput(8, 200, 12), 4)) {
    CHECK(seeds.count(WaitEnd(*answer).head.seed) == 0);
  }
  answers.clear();
  rig.CheckClean();
}

TEST_CASE("A first choice that is cancelled does not take the others with it",
          "[router][engine][choices]") {
  RigOptions options;
  options.shape.step_tokens_max = 64;
  options.step_us = 3000;
  EngineRig rig(options);
  rig.WaitReady();
  const GenerateInput input = MakeInput(7, 900, 6);
  auto answers = SubmitChoices(rig, input, 3);
  EngineRig::WaitUntil("its prompt is being read", [&rig] {
    return MetricValue(rig.probe(), "weft_num_requests_running") > 0;
  });
  answers[0]->Cancel(CancelReason::kClientGone);
  CHECK_FALSE(WaitEnd(*answers[0]).end.status.ok());
  for (size_t i : {1, 2}) {
    const Whole whole = WaitEnd(*answers[i]);
    CHECK(whole.end.status.ok());
    CHECK(whole.ids.size() == 6);
  }
  // And all of them at once leave nothing behind.
  auto others = SubmitChoices(rig, input, 3);
  for (auto& answer : others) answer->Cancel(CancelReason::kClientGone);
  for (auto& answer : others) CHECK_FALSE(WaitEnd(*answer).end.status.ok());
  answers.clear();
  others.clear();
  rig.CheckClean();
}

TEST_CASE("Choices outlive the loss of their group, waiting ones too",
          "[router][engine][choices]") {
  RigOptions options;
  options.shape.step_tokens_max = 64;
  // In the middle of the first one's prompt.
  options.faults = [](Rank, const MockMoment& moment) {
    return moment.call == "Prefill" && moment.before == 2 ? MockFault::kError : MockFault::kNone;
  };
  EngineRig rig(options);
  rig.WaitReady();
  const GenerateInput input = MakeInput(9, 300, 8);
  auto answers = SubmitChoices(rig, input, 3);
  for (auto& answer : answers) {
    const Whole whole = WaitEnd(*answer);
    CHECK(whole.end.status.ok());
    GenerateInput alone = input;
    alone.seed = whole.head.seed;
    CHECK(whole.ids == rig.Expected(alone));
  }
  CHECK(MetricValue(rig.probe(), R"(weft_group_losses_total{state="serving"})") == 1);
  answers.clear();
  rig.CheckClean();
}

TEST_CASE("Choices stay together in one of several groups", "[router][engine][choices]") {
  RigOptions options;
  options.groups = 2;
  options.shape.step_tokens_max = 64;
  EngineRig rig(options);
  rig.WaitReady();
  for (uint64_t seed : {1, 2, 3, 4}) {
    const GenerateInput input = MakeInput(seed, 200, 5);
    auto answers = SubmitChoices(rig, input, 4);
    for (size_t i = 0; i < answers.size(); ++i) {
      const Whole whole = WaitEnd(*answers[i]);
      CHECK(whole.end.status.ok());
      CHECK(whole.head.cached_tokens == (i == 0 ? 0 : 192));
    }
  }
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router
