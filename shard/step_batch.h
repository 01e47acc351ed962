// One step, ready for the device, and what comes back: the words in which the protocol half of the
// shard (shard/control) and its computing half (shard/device) talk. Plain data that every folder of
// the shard may include; made by the step thread, consumed by the device thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "shard/step_masks.h"

namespace weft::shard {

// As weft.shard.v1.SamplingParams.
struct SamplingParams {
  float temperature = 0.0f;
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint32_t min_tokens = 0;
  std::vector<TokenId> held_ids;
  // 0: ids outside of a mask are not sampled.
  float mask_penalty = 0.0f;
  bool logprobs = false;
  uint32_t top_logprobs = 0;

  // Of a sequence with a prompt of `prompt_len` tokens, the token at `position` may be none of
  // held_ids.
  bool holds(uint32_t prompt_len, Position position) const {
    return uint64_t{position} < uint64_t{prompt_len} + min_tokens;
  }

  bool has_penalties() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
};

// A sequence that enters the device with this step: its sampling state begins.
struct SequenceStart {
  Slot slot = 0;
  SequenceId sequence = 0;
  uint32_t prompt_len = 0;
  SamplingParams sampling;
  // All known ids from position 0, only with penalties.
  std::vector<TokenId> penalty_ids;
};

// Rows of one sequence in the flat token batch.
struct StepSequence {
  Slot slot = 0;
  SequenceId sequence = 0;
  // Range in StepBatch::ids.
  uint32_t token_begin = 0;
  uint32_t token_count = 0;
  // Position of the first token; the context after the step is start + token_count.
  Position start = 0;
  // The one id is the token this slot sampled last; it lives on the device (ids[token_begin] is
  // kNoToken).
  bool from_last_sample = false;
  // A token is sampled after the last row.
  bool sample = false;
  // That token is one of those that StepBatch::masks allows for the slot.
  bool masked = false;
};

// Rows of one sequence that are scored: of each it is known which token comes behind it.
struct StepScoring {
  // Index into StepBatch::sequences, ascending, each once; and the first of its rows that is
  // scored, counted from its first row.
  uint32_t sequence = 0;
  uint32_t first = 0;
  // Range in StepBatch::targets: the ids behind the rows.
  uint32_t begin = 0;
  uint32_t count = 0;
  // So many most likely tokens are wanted of each row; not more than the vocabulary has.
  uint32_t top = 0;
};

// The block table of one sequence in one KV group: blocks first .. first + count - 1 of the
// sequence, which hold all positions that the step's rows read or write in the layers of the group.
struct StepTable {
  uint32_t first = 0;
  // Range in StepBatch::block_ids.
  uint32_t begin = 0;
  uint32_t count = 0;
};

struct StepBatch {
  Epoch epoch = 0;
  StepNumber step = 0;
  // Slots whose device state ends before this step.
  std::vector<Slot> drops;
  std::vector<SequenceStart> starts;
  std::vector<TokenId> ids;
  // Decode rows in ascending slot order, then chunks in request order.
  std::vector<StepSequence> sequences;
  // KV groups of the model, and the tables of each sequence in their order.
  uint32_t kv_groups = 1;
  std::vector<StepTable> tables;
  std::vector<BlockId> block_ids;
  std::vector<StepScoring> scorings;
  std::vector<TokenId> targets;
  // Of the rows that are masked; null when none is.
  std::shared_ptr<StepMasks> masks;

  const StepTable& table(size_t sequence, uint32_t group) const {
    return tables[sequence * kv_groups + group];
  }
};

struct SampledLogprobs {
  uint32_t row = 0;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;
};

// Of the scored rows of a step, in the order of StepBatch::targets: as weft.shard.v1.PromptScores.
struct StepScores {
  std::vector<float> logprobs;
  std::vector<uint32_t> ranks;
  // Of each row as many as its scoring's `top`.
  std::vector<std::pair<TokenId, float>> top;
};

// What the device thread's compute helpers cost a step.
struct HelperCosts {
  // Spent waiting for items that helpers held; of these waits, how many were stalls.
  uint64_t wait_us = 0;
  uint64_t stalls = 0;
  // Times the device thread went on alone for a while because of them.
  uint64_t backoffs = 0;
};

struct StepResult {
  // One per StepSequence with `sample`, in order. The same on all ranks.
  std::vector<Slot> slots;
  std::vector<TokenId> ids;
  std::vector<SampledLogprobs> logprobs;
  // Rows, as indices into ids and ascending, whose logits held NaN or +infinity or nothing finite:
  // their ids mean nothing. The same on all ranks.
  std::vector<uint32_t> invalid_rows;
  StepScores scores;
  uint32_t device_us = 0;
  uint32_t comm_us = 0;
  // As Ops::WeightPasses().
  uint32_t weight_passes = 0;
  HelperCosts helpers;
  // Keys and values, elements of all layers and heads of this rank, that were too large for float16
  // and are in the KV cache as its largest number. 0 where the cache has another type, on GPUs
  // always.
  uint64_t kv_saturated = 0;
};

struct WarmupResult {
  uint32_t kv_blocks = 0;
  struct Cost {
    uint32_t rows;
    uint32_t prompt_tokens;
    uint64_t context_tokens;
    uint32_t step_us;
  };
  std::vector<Cost> costs;
};

}  // namespace weft::shard
