// The bytes of a step field by field: what the shards are told of a sequence's sampling, and of a
// sequence that is prefilled again.

#include "router/engine/step_message.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/util/message_differencer.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr Epoch kEpoch = 3;
constexpr uint64_t kSeed = 77;
constexpr TokenId kSampled = 9;

// A scheduler with one sequence of ten prompt tokens, and the messages of its steps.
struct OneSequence {
  OneSequence() : scheduler(Config()) {
    Form();
    Arrival arrival;
    arrival.id = 5;
    std::vector<TokenId> ids(10);
    std::iota(ids.begin(), ids.end(), 20u);
    arrival.prompt = Prompt(ids);
    arrival.max_new_tokens = 20;
    REQUIRE(scheduler.OnArrival(std::move(arrival), 0).ok());
  }

  static SchedulerConfig Config() {
    SchedulerConfig config;
    config.running_max = 4;
    config.step_tokens_max = 64;
    config.block_tokens = 4;
    config.context_tokens_max = 64;
    return config;
  }
  void Form() {
    GroupInfo group;
    group.epoch = kEpoch;
    group.kv_blocks = 32;
    scheduler.OnGroupFormed(group, 0, &ended);
  }
  const StepPlan& Plan() {
    const StepPlan* const plan = scheduler.Plan(0);
    REQUIRE(plan != nullptr);
    return *plan;
  }
  wire::PrefillRequest Prefill(const StepPlan& plan) {
    REQUIRE(StepMessage::CallOf(plan.kind) == ShardCall::kPrefill);
    const SharedBytes bytes = message.Build(kEpoch, plan, scheduler, [this](SequenceId) {
      return ChunkSource{&sampling, kSeed, /*prompt_tokens=*/10, /*masked=*/false, scores};
    });
    wire::PrefillRequest request;
    REQUIRE(request.ParseFromString(*bytes));
    return request;
  }
  // Every row of the step samples the same token.
  void Answer(const StepPlan& plan) {
    std::vector<SampledRow> rows;
    for (const Slot slot : plan.decode_slots) rows.push_back({slot, kSampled});
    for (const PlannedChunk& chunk : plan.chunks) {
      if (chunk.last) rows.push_back({chunk.slot, kSampled});
    }
    scheduler.OnStepDone(plan.step, rows, {100}, 0, &emitted, &ended);
  }

  Scheduler scheduler;
  StepMessage message;
  SamplingParams sampling;
  const PromptScores* scores = nullptr;
  std::vector<Emitted> emitted;
  std::vector<Ended> ended;
};

TEST_CASE("A sequence's first chunk tells the shards every sampling parameter",
          "[router][engine]") {
  OneSequence one;
  one.sampling.temperature = 0.5f;
  one.sampling.top_k = 3;
  one.sampling.top_p = 0.75f;
  one.sampling.min_p = 0.125f;
  one.sampling.typical_p = 0.875f;
  one.sampling.repetition_penalty = 1.25f;
  one.sampling.presence_penalty = -0.5f;
  one.sampling.frequency_penalty = 1.5f;
  one.sampling.logit_bias = {{4, -2.0f}, {8, 2.0f}};
  one.sampling.min_tokens = 9;
  one.sampling.held_ids = {2, 5};
  one.sampling.mask_penalty = 1.75f;
  one.sampling.logprobs = true;
  one.sampling.top_logprobs = 6;
  const wire::PrefillRequest request = one.Prefill(one.Plan());
  REQUIRE(request.chunks_size() == 1);
  const wire::Chunk& chunk = request.chunks(0);
  wire::SamplingParams expected;
  expected.set_temperature(0.5f);
  expected.set_top_k(3);
  expected.set_top_p(0.75f);
  expected.set_min_p(0.125f);
  expected.set_typical_p(0.875f);
  expected.set_repetition_penalty(1.25f);
  expected.set_presence_penalty(-0.5f);
  expected.set_frequency_penalty(1.5f);
  expected.set_seed(kSeed);
  for (const auto& [id, bias] : one.sampling.logit_bias) {
    auto* const entry = expected.add_logit_bias();
    entry->set_id(id);
    entry->set_bias(bias);
  }
  expected.set_min_tokens(9);
  expected.add_held_ids(2);
  expected.add_held_ids(5);
  expected.set_mask_penalty(1.75f);
  expected.set_logprobs(true);
  expected.set_top_logprobs(6);
  INFO(chunk.sampling().ShortDebugString());
  CHECK(google::protobuf::util::MessageDifferencer::Equals(chunk.sampling(), expected));
  // Nothing of the message is left out here: a field that is new to it belongs above.
  std::vector<const google::protobuf::FieldDescriptor*> set;
  expected.GetReflection()->ListFields(expected, &set);
  CHECK(static_cast<int>(set.size()) == expected.GetDescriptor()->field_count());
}

TEST_CASE("A chunk of a prompt that is scored says the tokens behind its rows",
          "[router][engine]") {
  OneSequence one;
  std::vector<TokenId> prompt(10);
  std::iota(prompt.begin(), prompt.end(), 20u);
  PromptScores scores(prompt, 3, nullptr);
  one.scores = &scores;
  const StepPlan plan = one.Plan();
  const wire::PrefillRequest whole = one.Prefill(plan);
  const wire::PromptScoring& scoring = whole.chunks(0).scoring();
  CHECK(scoring.start() == 0);
  CHECK(scoring.top() == 3);
  CHECK(std::vector<TokenId>(scoring.targets().begin(), scoring.targets().end()) ==
        std::vector<TokenId>(prompt.begin() + 1, prompt.end()));
  for (int i = 0; i < 4; ++i) scores.Add(-1, 1, {});
  CHECK(one.Prefill(plan).chunks(0).scoring().start() == 4);
  CHECK(one.Prefill(plan).chunks(0).scoring().targets_size() == 5);
  for (int i = 0; i < 5; ++i) scores.Add(-1, 1, {});
  CHECK_FALSE(one.Prefill(plan).chunks(0).has_scoring());
}

TEST_CASE("A step's header and chunk say where they belong", "[router][engine]") {
  OneSequence one;
  const StepPlan& plan = one.Plan();
  const wire::PrefillRequest request = one.Prefill(plan);
  CHECK(request.header().epoch() == kEpoch);
  CHECK(request.header().step() == plan.step);
  REQUIRE(request.header().block_deltas_size() == 1);
  CHECK(request.header().block_deltas(0).slot() == plan.chunks[0].slot);
  CHECK(request.header().block_deltas(0).blocks_size() == 3);
  REQUIRE(request.chunks_size() == 1);
  const wire::Chunk& chunk = request.chunks(0);
  CHECK(chunk.slot() == plan.chunks[0].slot);
  CHECK(chunk.sequence() == 5);
  CHECK(chunk.start() == 0);
  CHECK((chunk.first() && chunk.last()));
  CHECK(chunk.prompt_len() == 10);
  REQUIRE(chunk.ids_size() == 10);
  CHECK((chunk.ids(0) == 20 && chunk.ids(9) == 29));
  // Nobody needs all ids without a penalty.
  CHECK(chunk.penalty_ids_size() == 0);
}

TEST_CASE("A sequence that is prefilled again keeps its prompt's length", "[router][engine]") {
  OneSequence one;
  one.sampling.presence_penalty = 0.5f;
  for (int step = 0; step < 4; ++step) one.Answer(one.Plan());
  REQUIRE(one.emitted.size() == 4);
  one.scheduler.OnGroupLost(0, &one.ended);
  one.Form();
  const wire::PrefillRequest request = one.Prefill(one.Plan());
  REQUIRE(request.chunks_size() == 1);
  const wire::Chunk& chunk = request.chunks(0);
  CHECK(chunk.first());
  CHECK(chunk.ids_size() == 14);
  CHECK(chunk.prompt_len() == 10);
  REQUIRE(chunk.penalty_ids_size() == 14);
  CHECK((chunk.penalty_ids(9) == 29 && chunk.penalty_ids(10) == kSampled));
}

}  // namespace
}  // namespace weft::router
