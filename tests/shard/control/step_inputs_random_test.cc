// The wire parser of steps under random steps and random bytes: refused, or a safe batch.

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/shard/control/batch_fault.h"
#include "tests/shard/control/step_cases.h"

namespace weft::shard {
namespace {

// Steps of plausible and implausible numbers: many are right, and state builds up.
class RandomSteps {
 public:
  RandomSteps(uint32_t seed, uint32_t groups) : groups_(groups), random_(seed) {}

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Rarely() { return Below(40) == 0; }
  uint32_t Small(uint32_t n) { return Rarely() ? static_cast<uint32_t>(random_()) : Below(n); }

  void FillHeader(v1::StepHeader* header) {
    for (uint32_t i = Below(8) == 0 ? 1 : 0; i > 0; --i) header->add_drop_slots(Small(4));
    for (uint32_t i = Below(3); i > 0; --i) {
      v1::BlockDelta* delta = header->add_block_deltas();
      delta->set_slot(Small(4));
      if (groups_ > 1 || Rarely()) delta->set_group(Small(groups_ > 1 ? groups_ : 3));
      if (Below(groups_ > 1 ? 3 : 40) == 0) delta->set_leave_front(Small(3));
      for (uint32_t j = Below(6); j > 0; --j) delta->add_blocks(Small(32));
    }
  }

  void FillChunk(v1::Chunk* chunk) {
    chunk->set_slot(Small(4));
    chunk->set_sequence(Small(6));
    chunk->set_start(Below(2) == 0 ? 0 : Small(20));
    for (uint32_t i = 1 + Below(6); i > 0; --i) chunk->add_ids(Small(100));
    if (Rarely()) chunk->clear_ids();
    chunk->set_last(Below(2) == 0);
    chunk->set_first(Below(3) != 0);
    if (!chunk->first() && !Rarely()) return;
    chunk->set_prompt_len(1 + Small(4));
    SetNeutral(chunk->mutable_sampling());
    if (Rarely()) {
      const uint32_t bits = static_cast<uint32_t>(random_());
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      chunk->mutable_sampling()->set_temperature(value);
      chunk->mutable_sampling()->set_frequency_penalty(value);
    }
    if (Below(6) == 0) {
      chunk->mutable_sampling()->set_presence_penalty(0.5f);
      for (uint32_t i = 0; i < chunk->start() % 32; ++i) chunk->add_penalty_ids(Small(100));
      for (const uint32_t id : chunk->ids()) chunk->add_penalty_ids(id);
    }
  }

 private:
  const uint32_t groups_;
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("Random steps are refused or give a safe batch", "[shard][step_inputs][fuzz]") {
  const uint32_t seed = 20240607;
  WARN("seed " << seed);
  StepLimits limits = SmallLimits();
  limits.kv_windows = GENERATE(std::vector<uint32_t>{0}, std::vector<uint32_t>{0, 9});
  const bool plain = limits.kv_windows.size() == 1;
  RandomSteps random(seed, static_cast<uint32_t>(limits.kv_windows.size()));
  const auto arranged = [&] {
    auto made = std::make_unique<StepInputs>(limits);
    plain ? Arrange(made.get()) : ArrangeGroups(made.get());
    return made;
  };
  auto inputs = arranged();
  int good = 0;
  int decoded = 0;
  int bad = 0;
  for (int round = 0; round < 200'000; ++round) {
    StepBatch batch;
    absl::Status status;
    switch (random.Below(5)) {
      case 0: {
        v1::DecodeRequest request;
        random.FillHeader(request.mutable_header());
        if (random.Rarely()) request.add_skip_slots(random.Small(4));
        status = inputs->Prepare(request, &batch);
        if (status.ok()) decoded += static_cast<int>(batch.sequences.size());
        break;
      }
      case 1: {
        v1::FilterBatchRequest request;
        if (random.Below(4) == 0) request.mutable_header()->add_drop_slots(random.Small(4));
        status = inputs->Prepare(request, &batch);
        break;
      }
      default: {
        v1::PrefillRequest request;
        random.FillHeader(request.mutable_header());
        request.set_with_decode(random.Below(2) == 0);
        for (uint32_t i = 1 + random.Below(2); i > 0; --i) random.FillChunk(request.add_chunks());
        status = inputs->Prepare(request, &batch);
      }
    }
    if (status.ok()) {
      ++good;
      REQUIRE(BatchFault(limits, batch) == "");
    } else {
      // An error ends the epoch; now and then the state is used on, which must be safe too.
      ++bad;
      REQUIRE(absl::IsInvalidArgument(status));
      if (random.Below(4) != 0) {
        inputs = arranged();
      }
    }
  }
  CHECK(good > 10'000);
  CHECK(decoded > 10'000);
  CHECK(bad > 10'000);
}

TEST_CASE("Random bytes as steps are refused or give a safe batch", "[shard][step_inputs][fuzz]") {
  const uint32_t seed = 977;
  WARN("seed " << seed);
  std::mt19937 random(seed);
  const std::string good = GoodPrefill().SerializeAsString();
  int parsed = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes = good;
    for (uint32_t i = 1 + random() % 4; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::PrefillRequest request;
    if (!request.ParseFromString(bytes)) continue;
    ++parsed;
    StepInputs inputs(SmallLimits());
    Arrange(&inputs);
    StepBatch batch;
    if (inputs.Prepare(request, &batch).ok()) REQUIRE(BatchFault(SmallLimits(), batch) == "");
  }
  CHECK(parsed > 1000);
}

}  // namespace weft::shard
