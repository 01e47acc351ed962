// The wire parser of steps: what good steps turn into, a table of bad ones, and random ones.

#include "shard/control/step_inputs.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/shard/control/step_builder.h"

namespace weft::shard {
namespace {

StepLimits Limits() {
  StepLimits limits;
  limits.vocab_size = 100;
  limits.context_tokens = 64;
  limits.running_max = 4;
  limits.step_tokens_max = 20;
  limits.block_tokens = 4;
  limits.kv_blocks = 32;
  return limits;
}

// Slot 2 runs (6 ids, blocks 0 1), slot 1 is being filled (3 of 9 ids, blocks 2 3 4).
void Arrange(StepInputs* inputs) {
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 2, {0, 1});
  AddBlocks(request.mutable_header(), 1, {2, 3, 4});
  AddFirstChunk(&request, 2, 20, {1, 2, 3, 4, 5, 6}, true, 6);
  AddFirstChunk(&request, 1, 10, {7, 8, 9}, false, 9);
  StepBatch batch;
  REQUIRE(inputs->Prepare(request, &batch).ok());
}

// A Prefill that is right after Arrange: slot 1 goes on, slot 0 begins, slot 2 decodes.
v1::PrefillRequest GoodPrefill() {
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 2);
  AddBlocks(request.mutable_header(), 0, {9});
  AddChunk(&request, 1, 10, 3, {1, 1, 1, 1, 1, 1}, true);
  AddFirstChunk(&request, 0, 30, {50, 51, 52}, true, 3);
  request.set_with_decode(true);
  return request;
}

}  // namespace

TEST_CASE("A mixed step becomes decode rows in slot order, then chunks in request order",
          "[shard][step_inputs]") {
  StepInputs inputs(Limits());
  Arrange(&inputs);
  CHECK(inputs.running() == 1);
  CHECK(inputs.held() == 2);
  StepBatch batch;
  REQUIRE(inputs.Prepare(GoodPrefill(), &batch).ok());
  CHECK(batch.epoch == 1);
  CHECK(batch.step == 2);
  CHECK(batch.drops.empty());
  REQUIRE(batch.starts.size() == 1);
  CHECK(batch.starts[0].slot == 0);
  CHECK(batch.starts[0].sequence == 30);
  CHECK(batch.starts[0].prompt_len == 3);
  CHECK(batch.ids == std::vector<TokenId>{kNoToken, 1, 1, 1, 1, 1, 1, 50, 51, 52});
  CHECK(batch.block_ids == std::vector<BlockId>{0, 1, 2, 3, 4, 9});
  REQUIRE(batch.sequences.size() == 3);
  const StepSequence& decode = batch.sequences[0];
  CHECK(decode.slot == 2);
  CHECK(decode.sequence == 20);
  CHECK(decode.from_last_sample);
  CHECK(decode.sample);
  CHECK(decode.start == 6);
  CHECK(decode.token_count == 1);
  CHECK(decode.block_begin == 0);
  CHECK(decode.block_count == 2);
  const StepSequence& chunk = batch.sequences[1];
  CHECK(chunk.slot == 1);
  CHECK_FALSE(chunk.from_last_sample);
  CHECK(chunk.sample);
  CHECK(chunk.start == 3);
  CHECK(chunk.token_begin == 1);
  CHECK(chunk.token_count == 6);
  CHECK(chunk.block_count == 3);
  CHECK(batch.sequences[2].slot == 0);
  CHECK(batch.sequences[2].token_begin == 7);
  CHECK(batch.sequences[2].block_begin == 5);
  CHECK(inputs.running() == 3);
}

TEST_CASE("A sequence decodes from the step after its last chunk, less skipped slots",
          "[shard][step_inputs]") {
  StepInputs inputs(Limits());
  Arrange(&inputs);
  StepBatch batch;
  REQUIRE(inputs.Prepare(GoodPrefill(), &batch).ok());
  v1::DecodeRequest decode;
  SetHeader(decode.mutable_header(), 1, 3);
  AddBlocks(decode.mutable_header(), 1, {5});
  decode.add_skip_slots(2);
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  REQUIRE(batch.sequences.size() == 2);
  CHECK(batch.sequences[0].slot == 0);
  CHECK(batch.sequences[0].start == 3);
  CHECK(batch.sequences[1].slot == 1);
  CHECK(batch.sequences[1].start == 9);
  // The skipped row did not move.
  decode.clear_skip_slots();
  decode.mutable_header()->clear_block_deltas();
  AddBlocks(decode.mutable_header(), 0, {6});
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  REQUIRE(batch.sequences.size() == 3);
  CHECK(batch.sequences[2].slot == 2);
  CHECK(batch.sequences[2].start == 7);
}

TEST_CASE("Drops come before blocks and chunks, so a slot and its blocks change hands in a step",
          "[shard][step_inputs]") {
  StepInputs inputs(Limits());
  Arrange(&inputs);
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 2, {2});
  AddBlocks(request.mutable_header(), 2, {1, 0});
  AddFirstChunk(&request, 2, 99, {5, 5, 5, 5, 5}, true, 5);
  request.set_with_decode(true);
  StepBatch batch;
  REQUIRE(inputs.Prepare(request, &batch).ok());
  CHECK(batch.drops == std::vector<Slot>{2});
  REQUIRE(batch.sequences.size() == 1);
  CHECK(batch.sequences[0].sequence == 99);
  CHECK(batch.block_ids == std::vector<BlockId>{1, 0});
  v1::FilterBatchRequest filter;
  SetHeader(filter.mutable_header(), 1, 3, {1, 2});
  REQUIRE(inputs.Prepare(filter, &batch).ok());
  CHECK(batch.drops == std::vector<Slot>{1, 2});
  CHECK(batch.sequences.empty());
  CHECK(inputs.held() == 0);
  CHECK(inputs.running() == 0);
}

TEST_CASE("A prefix hit starts beyond position 0, and penalties bring all ids",
          "[shard][step_inputs]") {
  StepInputs inputs(Limits());
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 3, {7, 8});
  v1::Chunk* chunk = AddFirstChunk(&request, 3, 5, {44, 45}, true, 5);
  chunk->set_start(4);
  chunk->mutable_sampling()->set_repetition_penalty(1.3f);
  chunk->mutable_sampling()->set_seed(12345678901234567u);
  for (const uint32_t id : {40, 41, 42, 43, 44, 45}) chunk->add_penalty_ids(id);
  StepBatch batch;
  REQUIRE(inputs.Prepare(request, &batch).ok());
  REQUIRE(batch.starts.size() == 1);
  CHECK(batch.starts[0].penalty_ids == std::vector<TokenId>{40, 41, 42, 43, 44, 45});
  CHECK(batch.starts[0].sampling.repetition_penalty == 1.3f);
  CHECK(batch.starts[0].sampling.seed == 12345678901234567u);
  CHECK(batch.sequences[0].start == 4);
  CHECK(batch.sequences[0].block_count == 2);
}

TEST_CASE("A temperature too small to tell is greedy", "[shard][step_inputs]") {
  for (const auto& [sent, used] :
       {std::pair(0.0f, 0.0f), std::pair(1e-45f, 0.0f), std::pair(1e-38f, 0.0f),
        std::pair(0.99e-4f, 0.0f), std::pair(1e-4f, 1e-4f), std::pair(100.0f, 100.0f)}) {
    CAPTURE(sent);
    StepInputs inputs(Limits());
    v1::PrefillRequest request;
    SetHeader(request.mutable_header(), 1, 1);
    AddBlocks(request.mutable_header(), 3, {7});
    AddFirstChunk(&request, 3, 5, {44}, true, 1)->mutable_sampling()->set_temperature(sent);
    StepBatch batch;
    REQUIRE(inputs.Prepare(request, &batch).ok());
    CHECK(batch.starts[0].sampling.temperature == used);
  }
}

TEST_CASE("Bad Prefill steps are refused by field", "[shard][step_inputs]") {
  using Change = std::function<void(v1::PrefillRequest*)>;
  struct Case {
    const char* field;
    Change change;
  };
  const auto header = [](v1::PrefillRequest* r) { return r->mutable_header(); };
  const auto first = [](v1::PrefillRequest* r) { return r->mutable_chunks(1); };
  const auto sampling = [](v1::PrefillRequest* r) {
    return r->mutable_chunks(1)->mutable_sampling();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<Case> cases = {
      {"chunks:", [](auto* r) { r->clear_chunks(); }},
      {"chunks:",
       [](auto* r) {
         while (r->chunks_size() <= static_cast<int>(kChunksPerStepMax)) r->add_chunks();
       }},
      {"skip_slots:", [](auto* r) { r->set_with_decode(false), r->add_skip_slots(2); }},
      {"skip_slots[0]", [](auto* r) { r->add_skip_slots(1); }},
      {"skip_slots[0]", [](auto* r) { r->add_skip_slots(4000000000u); }},
      {"skip_slots[1]", [](auto* r) { r->add_skip_slots(2), r->add_skip_slots(2); }},
      {"header.drop_slots[0]", [&](auto* r) { header(r)->add_drop_slots(3); }},
      {"header.drop_slots[0]", [&](auto* r) { header(r)->add_drop_slots(4); }},
      {"header.drop_slots[1]",
       [&](auto* r) { header(r)->add_drop_slots(2), header(r)->add_drop_slots(2); }},
      {"header.block_deltas[1].slot", [&](auto* r) { AddBlocks(header(r), 4, {1}); }},
      {"header.block_deltas[1].group",
       [&](auto* r) {
         AddBlocks(header(r), 1, {1}), header(r)->mutable_block_deltas(1)->set_group(1);
       }},
      {"header.block_deltas[1].blocks", [&](auto* r) { AddBlocks(header(r), 1, {32}); }},
      {"header.block_deltas[1].blocks",
       [&](auto* r) {
         AddBlocks(header(r), 1, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
       }},
      {"header.block_deltas:", [&](auto* r) { AddBlocks(header(r), 3, {1}); }},
      {"chunks[1].slot", [&](auto* r) { first(r)->set_slot(4); }},
      {"chunks[1].first", [&](auto* r) { first(r)->set_slot(2); }},
      {"chunks[1].slot", [&](auto* r) { first(r)->set_first(false); }},
      {"chunks[1].slot", [&](auto* r) { first(r)->set_slot(1), first(r)->set_first(false); }},
      {"chunks[1].sequence", [&](auto* r) { first(r)->set_sequence(20); }},
      {"chunks[1].ids", [&](auto* r) { first(r)->clear_ids(); }},
      {"chunks[1].ids", [&](auto* r) { first(r)->set_ids(0, 100); }},
      {"chunks[1].ids",
       [&](auto* r) {
         for (int i = 0; i < 20; ++i) first(r)->add_ids(1);
       }},
      {"chunks[1].start", [&](auto* r) { first(r)->set_start(62); }},
      {"chunks[1].start", [&](auto* r) { first(r)->set_start(0xffffffffu); }},
      {"chunks[1]: slot 0 has 1 blocks", [&](auto* r) { first(r)->set_start(4); }},
      {"chunks[1].prompt_len", [&](auto* r) { first(r)->set_prompt_len(0); }},
      {"chunks[1].prompt_len", [&](auto* r) { first(r)->set_prompt_len(65); }},
      {"chunks[1].last", [&](auto* r) { first(r)->set_prompt_len(4); }},
      {"chunks[1].penalty_ids", [&](auto* r) { first(r)->add_penalty_ids(1); }},
      {"chunks[1].penalty_ids", [&](auto* r) { sampling(r)->set_presence_penalty(1); }},
      {"chunks[1].penalty_ids",
       [&](auto* r) { sampling(r)->set_presence_penalty(1), first(r)->add_penalty_ids(50); }},
      {"chunks[1].penalty_ids",
       [&](auto* r) {
         sampling(r)->set_presence_penalty(1);
         for (const uint32_t id : {50, 51, 53}) first(r)->add_penalty_ids(id);
       }},
      {"chunks[1].penalty_ids",
       [&](auto* r) {
         sampling(r)->set_presence_penalty(1);
         for (const uint32_t id : {50, 51, 52, 100}) first(r)->add_penalty_ids(id);
       }},
      {"chunks[1].ids: they end at 3",
       [&](auto* r) {
         sampling(r)->set_presence_penalty(1);
         for (const uint32_t id : {50, 51, 52, 53}) first(r)->add_penalty_ids(id);
       }},
      {"chunks[0].start", [](auto* r) { r->mutable_chunks(0)->set_start(2); }},
      {"chunks[0].slot", [](auto* r) { r->mutable_chunks(0)->set_sequence(11); }},
      {"chunks[0]: prompt_len", [](auto* r) { r->mutable_chunks(0)->set_prompt_len(9); }},
      {"chunks[0]: prompt_len", [](auto* r) { r->mutable_chunks(0)->mutable_sampling(); }},
      {"chunks[0].first", [](auto* r) { r->mutable_chunks(0)->set_first(true); }},
      {"chunks[0].last", [](auto* r) { r->mutable_chunks(0)->mutable_ids()->Truncate(5); }},
      {"chunks[2].slot", [](auto* r) { AddChunk(r, 1, 10, 9, {1}, true); }},
      {"step: 21 tokens",
       [&](auto* r) {
         AddBlocks(header(r), 0, {10, 11, 12, 13});
         for (int i = 0; i < 11; ++i) first(r)->add_ids(1);
       }},
      {".sampling.temperature", [&](auto* r) { sampling(r)->set_temperature(-0.1f); }},
      {".sampling.temperature", [&](auto* r) { sampling(r)->set_temperature(nan); }},
      {".sampling.temperature", [&](auto* r) { sampling(r)->set_temperature(inf); }},
      {".sampling.top_p", [&](auto* r) { sampling(r)->set_top_p(0); }},
      {".sampling.top_p", [&](auto* r) { sampling(r)->set_top_p(1.01f); }},
      {".sampling.min_p", [&](auto* r) { sampling(r)->set_min_p(nan); }},
      {".sampling.typical_p", [&](auto* r) { sampling(r)->set_typical_p(0); }},
      {".sampling.repetition_penalty", [&](auto* r) { sampling(r)->set_repetition_penalty(0); }},
      {".sampling.repetition_penalty",
       [&](auto* r) { sampling(r)->set_repetition_penalty(0.009f); }},
      {".sampling.presence_penalty", [&](auto* r) { sampling(r)->set_presence_penalty(2.5f); }},
      {".sampling.frequency_penalty", [&](auto* r) { sampling(r)->set_frequency_penalty(-3); }},
      {".sampling.top_logprobs", [&](auto* r) { sampling(r)->set_top_logprobs(3); }},
      {".sampling.top_logprobs",
       [&](auto* r) { sampling(r)->set_logprobs(true), sampling(r)->set_top_logprobs(21); }},
      {".sampling.logit_bias[0].id", [&](auto* r) { sampling(r)->add_logit_bias()->set_id(100); }},
      {".sampling.logit_bias[1].id",
       [&](auto* r) { sampling(r)->add_logit_bias(), sampling(r)->add_logit_bias(); }},
      {".sampling.logit_bias[0].bias",
       [&](auto* r) { sampling(r)->add_logit_bias()->set_bias(101); }},
      {".sampling.logit_bias:",
       [&](auto* r) {
         for (size_t i = 0; i <= kLogitBiasMax; ++i) sampling(r)->add_logit_bias();
       }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    StepInputs inputs(Limits());
    Arrange(&inputs);
    v1::PrefillRequest request = GoodPrefill();
    cases[i].change(&request);
    StepBatch batch;
    const absl::Status status = inputs.Prepare(request, &batch);
    INFO("case " << i << " expects " << cases[i].field << ", got " << status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), cases[i].field));
  }
}

TEST_CASE("Bad Decode and FilterBatch steps are refused by field", "[shard][step_inputs]") {
  StepBatch batch;
  const auto decode = [&](const std::function<void(v1::DecodeRequest*)>& change) {
    StepInputs inputs(Limits());
    Arrange(&inputs);
    v1::DecodeRequest request;
    SetHeader(request.mutable_header(), 1, 2);
    change(&request);
    return std::string(inputs.Prepare(request, &batch).message());
  };
  CHECK(decode([](auto*) {}).empty());
  CHECK(absl::StrContains(decode([](auto* r) { r->add_skip_slots(0); }), "skip_slots[0]"));
  CHECK(absl::StrContains(decode([](auto* r) { AddBlocks(r->mutable_header(), 0, {1}); }),
                          "header.block_deltas"));
  CHECK(absl::StrContains(decode([](auto* r) { r->mutable_header()->add_drop_slots(0); }),
                          "header.drop_slots[0]"));
  StepInputs inputs(Limits());
  Arrange(&inputs);
  v1::FilterBatchRequest filter;
  AddBlocks(filter.mutable_header(), 1, {1});
  CHECK(absl::StrContains(inputs.Prepare(filter, &batch).message(), "header.block_deltas"));
}

TEST_CASE("A decode without a block for its position, or beyond the context, is refused",
          "[shard][step_inputs]") {
  StepInputs inputs(Limits());
  Arrange(&inputs);
  v1::DecodeRequest decode;
  SetHeader(decode.mutable_header(), 1, 2);
  StepBatch batch;
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  // Position 8 needs a third block.
  const absl::Status no_block = inputs.Prepare(decode, &batch);
  CHECK(absl::IsInvalidArgument(no_block));
  CHECK(absl::StrContains(no_block.message(), "slot 2 has 2 blocks"));
  AddBlocks(decode.mutable_header(), 2, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18});
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  decode.mutable_header()->clear_block_deltas();
  for (int position = 9; position < 64; ++position) REQUIRE(inputs.Prepare(decode, &batch).ok());
  const absl::Status full = inputs.Prepare(decode, &batch);
  CHECK(absl::IsInvalidArgument(full));
  CHECK(absl::StrContains(full.message(), "context of 64 tokens is full"));
}

namespace {

// Steps of plausible and implausible numbers: many are right, and state builds up.
class RandomSteps {
 public:
  explicit RandomSteps(uint32_t seed) : random_(seed) {}

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Rarely() { return Below(40) == 0; }
  uint32_t Small(uint32_t n) { return Rarely() ? static_cast<uint32_t>(random_()) : Below(n); }

  void FillHeader(v1::StepHeader* header) {
    for (uint32_t i = Below(8) == 0 ? 1 : 0; i > 0; --i) header->add_drop_slots(Small(4));
    for (uint32_t i = Below(3); i > 0; --i) {
      v1::BlockDelta* delta = header->add_block_deltas();
      delta->set_slot(Small(4));
      if (Rarely()) delta->set_group(Small(3));
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
  std::mt19937 random_;
};

// What a batch must satisfy for the device to be safe.
void CheckSafe(const StepLimits& limits, const StepBatch& batch) {
  REQUIRE(batch.ids.size() <= limits.step_tokens_max);
  uint32_t tokens = 0;
  uint32_t blocks = 0;
  for (const StepSequence& rows : batch.sequences) {
    REQUIRE(rows.slot < limits.running_max);
    REQUIRE(rows.token_count > 0);
    REQUIRE(rows.token_begin == tokens);
    REQUIRE(rows.block_begin == blocks);
    REQUIRE(rows.start + rows.token_count <= limits.context_tokens);
    REQUIRE(rows.block_count * limits.block_tokens >= rows.start + rows.token_count);
    tokens += rows.token_count;
    blocks += rows.block_count;
    for (uint32_t i = 0; i < rows.token_count; ++i) {
      const TokenId id = batch.ids[rows.token_begin + i];
      REQUIRE((rows.from_last_sample ? id == kNoToken : id < limits.vocab_size));
    }
  }
  REQUIRE(tokens == batch.ids.size());
  REQUIRE(blocks == batch.block_ids.size());
  for (const BlockId block : batch.block_ids) REQUIRE(block < limits.kv_blocks);
}

}  // namespace

TEST_CASE("Random steps are refused or give a safe batch", "[shard][step_inputs][fuzz]") {
  const uint32_t seed = 20240607;
  WARN("seed " << seed);
  RandomSteps random(seed);
  auto inputs = std::make_unique<StepInputs>(Limits());
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
      CheckSafe(Limits(), batch);
    } else {
      // An error ends the epoch; now and then the state is used on, which must be safe too.
      ++bad;
      REQUIRE(absl::IsInvalidArgument(status));
      if (random.Below(4) != 0) {
        inputs = std::make_unique<StepInputs>(Limits());
        Arrange(inputs.get());
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
    StepInputs inputs(Limits());
    Arrange(&inputs);
    StepBatch batch;
    if (inputs.Prepare(request, &batch).ok()) CheckSafe(Limits(), batch);
  }
  CHECK(parsed > 1000);
}

}  // namespace weft::shard
