// The wire parser of steps: what good steps turn into, and a table of bad ones.

#include "shard/control/step_inputs.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/shard/control/step_cases.h"

namespace weft::shard {

TEST_CASE("A mixed step becomes decode rows in slot order, then chunks in request order",
          "[shard][step_inputs]") {
  StepInputs inputs(SmallLimits());
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
  CHECK(batch.table(0, 0).begin == 0);
  CHECK(batch.table(0, 0).count == 2);
  const StepSequence& chunk = batch.sequences[1];
  CHECK(chunk.slot == 1);
  CHECK_FALSE(chunk.from_last_sample);
  CHECK(chunk.sample);
  CHECK(chunk.start == 3);
  CHECK(chunk.token_begin == 1);
  CHECK(chunk.token_count == 6);
  CHECK(batch.table(1, 0).count == 3);
  CHECK(batch.sequences[2].slot == 0);
  CHECK(batch.sequences[2].token_begin == 7);
  CHECK(batch.table(2, 0).begin == 5);
  CHECK(inputs.running() == 3);
}

TEST_CASE("A sequence decodes from the step after its last chunk, less skipped slots",
          "[shard][step_inputs]") {
  StepInputs inputs(SmallLimits());
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

TEST_CASE("A sequence is masked from its first chunk's word on, where it samples",
          "[shard][step_inputs][masks]") {
  StepInputs inputs(SmallLimits());
  v1::PrefillRequest request;
  SetHeader(request.mutable_header(), 1, 1);
  AddBlocks(request.mutable_header(), 0, {0, 1});
  AddBlocks(request.mutable_header(), 1, {2, 3});
  AddFirstChunk(&request, 0, 5, {1, 2}, false, 3)->set_masked(true);
  AddFirstChunk(&request, 1, 6, {1, 2, 3}, true, 3);
  StepBatch batch;
  REQUIRE(inputs.Prepare(request, &batch).ok());
  CHECK_FALSE(batch.sequences[0].masked);
  CHECK_FALSE(batch.sequences[1].masked);
  v1::PrefillRequest last;
  SetHeader(last.mutable_header(), 1, 2);
  AddChunk(&last, 0, 5, 2, {3}, true);
  last.set_with_decode(true);
  REQUIRE(inputs.Prepare(last, &batch).ok());
  REQUIRE(batch.sequences.size() == 2);
  CHECK(batch.sequences[0].slot == 1);
  CHECK_FALSE(batch.sequences[0].masked);
  CHECK(batch.sequences[1].masked);
  v1::DecodeRequest decode;
  SetHeader(decode.mutable_header(), 1, 3);
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  REQUIRE(batch.sequences.size() == 2);
  CHECK(batch.sequences[0].masked);
  CHECK_FALSE(batch.sequences[1].masked);
  // Who takes the slot next is not.
  v1::PrefillRequest other;
  SetHeader(other.mutable_header(), 1, 4, {0});
  AddBlocks(other.mutable_header(), 0, {0});
  AddFirstChunk(&other, 0, 7, {9}, true, 1);
  REQUIRE(inputs.Prepare(other, &batch).ok());
  REQUIRE(batch.sequences.size() == 1);
  CHECK_FALSE(batch.sequences[0].masked);
}

TEST_CASE("Drops come before blocks and chunks, so a slot and its blocks change hands in a step",
          "[shard][step_inputs]") {
  StepInputs inputs(SmallLimits());
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
  StepInputs inputs(SmallLimits());
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
  CHECK(batch.table(0, 0).count == 2);
}

TEST_CASE("The prompt's length is what the first chunk says, whatever ids it brings",
          "[shard][step_inputs]") {
  struct Case {
    std::vector<uint32_t> ids;
    bool last;
    uint32_t prompt_len;
  };
  // The first part of a prompt, a whole one, and a prompt that comes again with its output.
  const Case cases[] = {
      {{1, 2, 3}, false, 7}, {{1, 2, 3, 4, 5}, true, 5}, {{1, 2, 3, 4, 5, 6}, true, 2}};
  for (const Case& test : cases) {
    StepInputs inputs(SmallLimits());
    v1::PrefillRequest request;
    SetHeader(request.mutable_header(), 1, 1);
    AddBlocks(request.mutable_header(), 3, {7, 8});
    AddFirstChunk(&request, 3, 5, test.ids, test.last, test.prompt_len);
    StepBatch batch;
    const absl::Status status = inputs.Prepare(request, &batch);
    INFO(status);
    REQUIRE(status.ok());
    REQUIRE(batch.starts.size() == 1);
    CHECK(batch.starts[0].prompt_len == test.prompt_len);
  }
}

TEST_CASE("A temperature too small to tell is greedy", "[shard][step_inputs]") {
  for (const auto& [sent, used] :
       {std::pair(0.0f, 0.0f), std::pair(1e-45f, 0.0f), std::pair(1e-38f, 0.0f),
        std::pair(0.99e-4f, 0.0f), std::pair(1e-4f, 1e-4f), std::pair(100.0f, 100.0f)}) {
    CAPTURE(sent);
    StepInputs inputs(SmallLimits());
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
      {"header.block_deltas[1].leave_front",
       [&](auto* r) {
         AddBlocks(header(r), 2, {1}), header(r)->mutable_block_deltas(1)->set_leave_front(1);
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
      {"chunks[0]: prompt_len", [](auto* r) { r->mutable_chunks(0)->set_masked(true); }},
      {"chunks[0].first", [](auto* r) { r->mutable_chunks(0)->set_first(true); }},
      {"chunks[0].last", [](auto* r) { r->mutable_chunks(0)->mutable_ids()->Truncate(5); }},
      {"chunks[2].slot", [](auto* r) { AddChunk(r, 1, 10, 9, {1}, true); }},
      {"step: 21 tokens",
       [&](auto* r) {
         for (const uint32_t id : {10, 11, 12, 13}) {
           header(r)->mutable_block_deltas(0)->add_blocks(id);
         }
         for (int i = 0; i < 11; ++i) first(r)->add_ids(1);
       }},
      {".scoring.targets: empty", [&](auto* r) { first(r)->mutable_scoring(); }},
      {".scoring.targets: 100 is not below",
       [&](auto* r) { first(r)->mutable_scoring()->add_targets(100); }},
      {".scoring.start: rows 2 to 4 are not in the chunk's 0 to 3",
       [&](auto* r) {
         first(r)->mutable_scoring()->set_start(2);
         for (const uint32_t id : {1, 2}) first(r)->mutable_scoring()->add_targets(id);
       }},
      {".scoring.start: rows 4294967295",
       [&](auto* r) {
         first(r)->mutable_scoring()->set_start(~0u);
         first(r)->mutable_scoring()->add_targets(1);
       }},
      {"chunks[0].scoring.start: rows 2 to 3 are not in the chunk's 3 to 9",
       [](auto* r) {
         r->mutable_chunks(0)->mutable_scoring()->set_start(2);
         r->mutable_chunks(0)->mutable_scoring()->add_targets(1);
       }},
      {".scoring.top: 21",
       [&](auto* r) {
         first(r)->mutable_scoring()->add_targets(1);
         first(r)->mutable_scoring()->set_top(21);
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
    StepInputs inputs(SmallLimits());
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

TEST_CASE("Chunks say which of their rows are scored", "[shard][step_inputs]") {
  StepInputs inputs(SmallLimits());
  Arrange(&inputs);
  v1::PrefillRequest request = GoodPrefill();
  v1::PromptScoring* const later = request.mutable_chunks(0)->mutable_scoring();
  later->set_start(5);
  for (const uint32_t id : {11, 12, 13}) later->add_targets(id);
  v1::PromptScoring* const whole = request.mutable_chunks(1)->mutable_scoring();
  for (const uint32_t id : {51, 52}) whole->add_targets(id);
  whole->set_top(20);
  StepBatch batch;
  REQUIRE(inputs.Prepare(request, &batch).ok());
  CHECK(batch.targets == std::vector<TokenId>{11, 12, 13, 51, 52});
  REQUIRE(batch.scorings.size() == 2);
  // Behind the row that decodes.
  CHECK(batch.scorings[0].sequence == 1);
  CHECK(batch.scorings[0].first == 2);
  CHECK(batch.scorings[0].begin == 0);
  CHECK(batch.scorings[0].count == 3);
  CHECK(batch.scorings[0].top == 0);
  CHECK(batch.scorings[1].sequence == 2);
  CHECK(batch.scorings[1].first == 0);
  CHECK(batch.scorings[1].begin == 3);
  CHECK(batch.scorings[1].count == 2);
  CHECK(batch.scorings[1].top == 20);
  // The next step has none of them.
  v1::DecodeRequest decode;
  SetHeader(decode.mutable_header(), 1, 3);
  REQUIRE(inputs.Prepare(decode, &batch).ok());
  CHECK(batch.scorings.empty());
  CHECK(batch.targets.empty());
}

TEST_CASE("Bad Decode and FilterBatch steps are refused by field", "[shard][step_inputs]") {
  StepBatch batch;
  const auto decode = [&](const std::function<void(v1::DecodeRequest*)>& change) {
    StepInputs inputs(SmallLimits());
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
  StepInputs inputs(SmallLimits());
  Arrange(&inputs);
  v1::FilterBatchRequest filter;
  AddBlocks(filter.mutable_header(), 1, {1});
  CHECK(absl::StrContains(inputs.Prepare(filter, &batch).message(), "header.block_deltas"));
}

TEST_CASE("A decode without a block for its position, or beyond the context, is refused",
          "[shard][step_inputs]") {
  StepInputs inputs(SmallLimits());
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

}  // namespace weft::shard
