// Constrained answers through a whole engine: each is what its constraint makes of the model,
// alone, beside others, and through cancels, preemptions and lost groups; the shards count every
// mask (tests/support/mock_model.h).

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "router/errors.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

using testing::MockFault;
using testing::MockMoment;

// A request with a constraint that follows from its number, or none with every third. `may_end`:
// the model's end is among what is allowed.
GenerateInput Constrained(uint64_t seed, size_t prompt_tokens, uint32_t max_tokens,
                          bool may_end = false) {
  GenerateInput input = MakeInput(seed, prompt_tokens, max_tokens);
  switch (seed % 3) {
    case 0:
      break;
    case 1:
      input.allowed_token_ids = {97 + static_cast<TokenId>(seed % 5), 110, 115};
      if (may_end) input.allowed_token_ids.push_back(256);
      break;
    default:
      // More than one in ten tokens, and what they would have become, are banned.
      input.bad_words = {"a", "bc", "bd", "ef", "q", "xyz", "zz"};
      break;
  }
  return input;
}

void CheckAnswer(const EngineRig& rig, FakeSink& sink, const GenerateInput& input) {
  INFO("seed " << *input.seed);
  sink.WaitEnd();
  INFO(sink.status().ToString());
  CHECK(sink.status().ok());
  CHECK(sink.ids() == rig.Expected(input));
}

// Threads that work masks out wait while it is shut.
class HeldMasks : public Executor {
 public:
  std::unique_ptr<RunningLoop> Start(const std::string& name, Turn turn, int nice) override {
    if (!absl::StartsWith(name, "masks")) {
      return ThreadExecutor().Start(name, std::move(turn), nice);
    }
    auto woken = std::make_shared<bool>(false);
    std::unique_ptr<RunningLoop> loop = ThreadExecutor().Start(
        name,
        [this, woken, turn = std::move(turn)](bool) mutable {
          {
            absl::MutexLock lock(&mutex_);
            const auto may_go = [&] { return (*woken && open_) || ending_; };
            mutex_.Await(absl::Condition(&may_go));
            *woken = false;
          }
          return turn(/*may_wait=*/false) == LoopState::kEnded ? LoopState::kEnded
                                                               : LoopState::kWorked;
        },
        nice);
    return std::make_unique<Loop>(this, std::move(woken), std::move(loop));
  }
  void Set(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  // So that a test that has failed can end.
  void End() {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }

 private:
  class Loop : public RunningLoop {
   public:
    Loop(HeldMasks* owner, std::shared_ptr<bool> woken, std::unique_ptr<RunningLoop> loop)
        : owner_(*owner), woken_(std::move(woken)), loop_(std::move(loop)) {}
    void Wake() override {
      absl::MutexLock lock(&owner_.mutex_);
      *woken_ = true;
    }
    void Join() override { loop_->Join(); }

   private:
    HeldMasks& owner_;
    // Guarded by the owner's lock.
    const std::shared_ptr<bool> woken_;
    const std::unique_ptr<RunningLoop> loop_;
  };

  absl::Mutex mutex_;
  bool open_ = true;
  bool ending_ = false;
};

struct Ending {
  ~Ending() { masks.End(); }
  HeldMasks& masks;
};

TEST_CASE("Constrained answers beside plain ones are those of their constraints",
          "[router][engine][masks]") {
  const uint32_t world = GENERATE(1u, 2u);
  RigOptions options = TwoShards();
  options.world = world;
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<GenerateInput> inputs;
  // More than run at once, with prompts of one chunk and several.
  for (uint64_t seed = 1; seed <= 30; ++seed) inputs.push_back(Constrained(seed, 5 + 4 * seed, 30));
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  for (size_t i = 0; i < inputs.size(); ++i) CheckAnswer(rig, *sinks[i], inputs[i]);
  // The constraints said something.
  GenerateInput plain = inputs[0];
  plain.allowed_token_ids.clear();
  CHECK(rig.Expected(plain) != rig.Expected(inputs[0]));
  plain = inputs[1];
  plain.bad_words.clear();
  CHECK(rig.Expected(plain) != rig.Expected(inputs[1]));
  CHECK(rig.shard(0).stats().masked_rows >= 20 * 30);
  rig.CheckClean();
}

TEST_CASE("A constrained answer ends at the model's end with a row in flight behind it",
          "[router][engine][masks]") {
  RigOptions options = TwoShards();
  options.shape.vocabulary.eos_permille = 150;
  EngineRig rig(options);
  rig.WaitReady();
  std::vector<GenerateInput> inputs;
  for (uint64_t seed = 1; seed <= 40; ++seed) inputs.push_back(Constrained(seed, 10, 60, true));
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  int ended = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    CheckAnswer(rig, *sinks[i], inputs[i]);
    ended += sinks[i]->finished().reason == FinishReason::kEosToken ? 1 : 0;
  }
  CHECK(ended > 20);
  rig.CheckClean();
}

TEST_CASE("A stop string ends a constrained answer, whose rows in flight cost nobody",
          "[router][engine][masks]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = Constrained(4, 10, 200);
  const std::vector<TokenId> expected = rig.Expected(input);
  const std::string stop(1, static_cast<char>(expected[5]));
  input.stop_sequences = {stop};
  auto beside = rig.Submit(Constrained(5, 10, 100));
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  CHECK(sink->finished().reason == FinishReason::kStopSequence);
  CheckAnswer(rig, *beside, Constrained(5, 10, 100));
  rig.CheckClean();
}

TEST_CASE("A constrained request can be cancelled at each moment", "[router][engine][masks]") {
  RigOptions options = TwoShards();
  options.step_us = 200;
  EngineRig rig(options);
  rig.WaitReady();
  const GenerateInput stays = Constrained(2, 40, 400);
  auto other = rig.Submit(stays);
  other->WaitTokens(1);
  for (size_t moment = 0; moment < 24; ++moment) {
    auto gone = rig.Submit(Constrained(moment % 2 == 0 ? 1 : 5, 30 + 10 * moment, 600));
    // In the queue, in its prompt, or behind some tokens, wherever its masks then are.
    gone->WaitTokens(moment / 2);
    gone->Cancel(CancelReason::kClientGone);
    gone->WaitEnd();
    CHECK(absl::IsCancelled(gone->status()));
  }
  CheckAnswer(rig, *other, stays);
  rig.CheckClean();
}

TEST_CASE("A request can be cancelled while its mask is worked out", "[router][engine][masks]") {
  HeldMasks masks;
  RigOptions options = TwoShards();
  options.engine.runtime.executor = &masks;
  options.engine.hang_timeout_ms = 5'000;
  EngineRig rig(options);
  const Ending ending{masks};
  rig.WaitReady();
  const Grown grown(rig.probe(), {"weft_group_losses_total{state=\"serving\"}"});
  auto gone = rig.Submit(Constrained(1, 20, 400));
  auto stays = rig.Submit(Constrained(2, 20, 100));
  gone->WaitTokens(3);
  stays->WaitTokens(3);
  masks.Set(false);
  const size_t before = stays->tokens().size();
  gone->Cancel(CancelReason::kClientGone);
  gone->WaitEnd();
  CHECK(absl::IsCancelled(gone->status()));
  // A step or two may have been on their way.
  CHECK(stays->tokens().size() <= before + 2);
  masks.Set(true);
  CheckAnswer(rig, *stays, Constrained(2, 20, 100));
  CHECK(grown("weft_group_losses_total{state=\"serving\"}") == 0);
  rig.CheckClean();
}

TEST_CASE("Constrained answers that are preempted go on as they would have",
          "[router][engine][masks]") {
  RigOptions options = TwoShards();
  options.shape.kv_blocks = 40;  // of 16 tokens: too few for all that run
  EngineRig rig(options);
  rig.WaitReady();
  const Grown grown(rig.probe(), {"weft_num_preemptions_total"});
  std::vector<GenerateInput> inputs;
  for (uint64_t seed = 1; seed <= 16; ++seed) inputs.push_back(Constrained(seed, 20, 200));
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (const GenerateInput& input : inputs) sinks.push_back(rig.Submit(input));
  for (size_t i = 0; i < inputs.size(); ++i) CheckAnswer(rig, *sinks[i], inputs[i]);
  CHECK(grown("weft_num_preemptions_total") > 0);
  rig.CheckClean();
}

TEST_CASE("A group that is lost while masks are made goes on with the same ids",
          "[router][engine][masks]") {
  HeldMasks masks;
  RigOptions options = TwoShards();
  options.engine.runtime.executor = &masks;
  options.supervisor = false;
  EngineRig rig(options);
  const Ending ending{masks};
  rig.WaitReady();
  std::vector<GenerateInput> inputs;
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    inputs.push_back(Constrained(seed, 30, 80));
    sinks.push_back(rig.Submit(inputs.back()));
  }
  for (auto& sink : sinks) sink->WaitTokens(4);
  for (int loss = 0; loss < 3; ++loss) {
    masks.Set(false);
    rig.RestartShard(loss % 2);
    // The masks of the old epoch are made when the new one is there, or about to be.
    if (loss != 1) rig.WaitReady();
    masks.Set(true);
    rig.WaitReady();
    sinks[0]->WaitTokens(4 + 10 * (static_cast<size_t>(loss) + 1));
  }
  for (size_t i = 0; i < inputs.size(); ++i) CheckAnswer(rig, *sinks[i], inputs[i]);
  rig.CheckClean();
}

TEST_CASE("A shard that is lost with a MaskRows costs no token", "[router][engine][masks]") {
  const MockFault fault = GENERATE(MockFault::kDie, MockFault::kHang, MockFault::kError);
  std::atomic<int> left{2};
  RigOptions options = TwoShards();
  options.faults = [&](Rank rank, const MockMoment& moment) {
    const bool now = rank == 1 && moment.call == "MaskRows" && moment.before % 16 == 15;
    return now && left.fetch_sub(1) > 0 ? fault : MockFault::kNone;
  };
  EngineRig rig(options);
  const Grown grown(rig.probe(), {"weft_group_losses_total{state=\"serving\"}"});
  rig.WaitReady();
  std::vector<GenerateInput> inputs;
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    inputs.push_back(Constrained(seed, 30, 60));
    sinks.push_back(rig.Submit(inputs.back()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) CheckAnswer(rig, *sinks[i], inputs[i]);
  CHECK(grown("weft_group_losses_total{state=\"serving\"}") >= 1);
  rig.WaitReady();
  rig.CheckClean();
}

TEST_CASE("A constraint that leaves no token ends its own request alone",
          "[router][engine][masks]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  const GenerateInput stays = Constrained(2, 20, 150);
  auto other = rig.Submit(stays);
  GenerateInput at_once = MakeInput(7, 20, 50);
  at_once.allowed_token_ids = {'a'};
  at_once.bad_words = {"a"};
  GenerateInput later = MakeInput(8, 20, 50);
  later.allowed_token_ids = {'a'};
  later.bad_words = {"aaaa"};
  auto first = rig.Submit(at_once);
  auto second = rig.Submit(later);
  for (FakeSink* sink : {first.get(), second.get()}) {
    sink->WaitEnd();
    INFO(sink->status().ToString());
    CHECK(sink->status() == FieldsError(std::vector<std::string>{"allowed_token_ids", "bad_words"},
                                        "no token may come next"));
  }
  CHECK(first->ids().empty());
  CHECK(second->ids() == std::vector<TokenId>{'a', 'a', 'a'});
  CheckAnswer(rig, *other, stays);
  rig.CheckClean();
}

TEST_CASE("A resumed answer goes on under its constraint", "[router][engine][masks]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = MakeInput(11, 20, 40);
  input.allowed_token_ids = {'a', 'b', 'c'};
  input.bad_words = {"ab", "bca", "ca", "aaa", "bb"};
  const std::vector<TokenId> expected = rig.Expected(input);
  REQUIRE(expected.size() == 40);
  for (const size_t had : {1u, 2u, 7u, 39u}) {
    GenerateInput rest = input;
    rest.resume =
        ResumeInput{{expected.begin(), expected.begin() + static_cast<ptrdiff_t>(had)}, "x"};
    auto sink = rig.Submit(rest);
    sink->WaitEnd();
    INFO(sink->status().ToString());
    CHECK(sink->ids() ==
          std::vector<TokenId>(expected.begin() + static_cast<ptrdiff_t>(had), expected.end()));
  }
  rig.CheckClean();
}

TEST_CASE("Ids that are all held back until the least length are refused by field",
          "[router][engine][masks]") {
  EngineRig rig(TwoShards());
  rig.WaitReady();
  GenerateInput input = MakeInput(1, 20, 40);
  input.allowed_token_ids = {256};
  input.sampling.min_tokens = 3;
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  INFO(sink->status().ToString());
  CHECK(absl::IsInvalidArgument(sink->status()));
  CHECK(ErrorField(sink->status()).value_or("none") == "allowed_token_ids");
  CHECK(rig.shard(0).stats().steps == 0);
  // The same without a least length ends at once.
  input.sampling.min_tokens = 0;
  CheckAnswer(rig, *rig.Submit(input), input);
}

TEST_CASE("Each group has its masks from the same threads", "[router][groups][masks]") {
  RigOptions options = TwoShards();
  options.groups = 2;
  options.supervisor = false;
  EngineRig rig(options);
  EngineRig::WaitUntil("all groups serve", [&rig] {
    return MetricValue(rig.probe(), "weft_group_state{state=\"serving\"}") == 2;
  });
  std::vector<GenerateInput> inputs;
  std::vector<std::shared_ptr<FakeSink>> sinks;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    inputs.push_back(Constrained(seed, 20, 120));
    sinks.push_back(rig.Submit(inputs.back()));
  }
  for (auto& sink : sinks) sink->WaitTokens(3);
  // One of them is lost meanwhile.
  rig.RestartShard(3);
  for (size_t i = 0; i < inputs.size(); ++i) CheckAnswer(rig, *sinks[i], inputs[i]);
  CHECK(rig.shard(0).stats().masked_rows > 0);
  CHECK(rig.shard(2).stats().masked_rows > 0);
  rig.CheckClean();
}

}  // namespace
}  // namespace weft::router
