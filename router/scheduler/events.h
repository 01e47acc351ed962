// What the scheduler is told (its settings, groups that form, sequences that arrive, answers of
// steps) and what it tells in return (tokens and ends). Plain data between the engine loop and the
// scheduler, both on the engine loop's thread.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "common/limits.h"
#include "router/scheduler/prefix_hasher.h"

namespace weft::router {

// Number of a tenant, given by whoever keeps the tenants' names; 0 is the anonymous one.
using TenantIndex = uint32_t;

// Bounds of a tenant's weight.
inline constexpr double kTenantWeightMin = 1e-3;
inline constexpr double kTenantWeightMax = 1e3;

// Waiting that one step of priority is worth. Within a tenant the turn of a sequence is its arrival
// less this times its priority: whoever waits long enough comes before every newcomer.
inline constexpr int64_t kAgeingUsDefault = 10'000'000;

// Fixed for the life of a scheduler.
struct SchedulerConfig {
  // Slots: sequences that hold KV at the same time. 1 .. kRunningMax.
  uint32_t running_max = kRunningDefault;
  // Tokens of one step, decode rows and chunks together. >= running_max.
  uint32_t step_tokens_max = kStepTokensDefault;
  // Tokens of a KV block.
  uint32_t block_tokens = kKvBlockTokensCpu;
  // By KV group, 1 .. kKvGroupsMax of them: tokens that a query sees, itself included; 0: all.
  std::vector<uint32_t> kv_windows = {0};
  // Longest sequence, prompt and output together.
  uint32_t context_tokens_max = 0;
  // Waiting sequences, for sizing; admission keeps the real limit.
  uint32_t waiting_max = kQueueRequestsDefault;
  // Target of the time between two tokens of a running stream; bounds the chunks beside decode
  // rows. 0: each prompt under way, or waiting with a slot free for it, may add as much time to a
  // step as its decode rows take, so that one long prompt about doubles the gaps of streams and its
  // own time to first token, while prompts for many free slots get nearly all of the device.
  uint32_t inter_token_target_us = 0;
  // Microseconds of waiting that one step of priority is worth. >= 0.
  int64_t ageing_us = kAgeingUsDefault;
  // Share of the pool, in thousandths, kept free when a sequence is admitted or comes back.
  uint32_t watermark_permille = 10;
  bool prefix_cache = true;
  // Key of the prefix hash; random per process.
  uint64_t hash_key[2] = {0, 0};
  // For replays: the last id of a block is its hash (scheduler_state.h).
  bool label_ids = false;
  // Ids that end a sequence unless it ignores them. Sorted.
  std::vector<TokenId> eos_ids;
};

// A formed group: the start of an epoch.
struct GroupInfo {
  Epoch epoch = 0;
  // Blocks of the pool that all KV groups share.
  uint32_t kv_blocks = 0;
  // First points of the cost model, from Warmup.
  struct Cost {
    uint32_t rows;
    uint32_t prompt_tokens;
    uint64_t context_tokens;
    uint32_t step_us;
  };
  absl::Span<const Cost> costs;
};

// A sequence that admission accepted.
struct Arrival {
  // Never used before. Among sequences of the same turn the lower id goes first.
  SequenceId id = 0;
  // Becomes the log without a copy. Hashed by Scheduler::prefix_hasher() on another thread, its
  // hashes are taken too; else it is hashed here.
  Prompt prompt;
  // > 0; prompt + max_new_tokens <= context_tokens_max.
  uint32_t max_new_tokens = 0;
  // Whose share of the work it takes, and the weight that this tenant has from now on:
  // kTenantWeightMin .. kTenantWeightMax.
  TenantIndex tenant = 0;
  double tenant_weight = 1;
  // Higher goes earlier among the sequences of its tenant. -kPriorityAbsMax .. kPriorityAbsMax.
  int32_t priority = 0;
  bool ignore_eos = false;
  // Further ids that end it, ignore_eos or not. Ascending.
  std::vector<TokenId> stop_ids;
  // Skip the lookup in the prefix cache (its blocks may still be published).
  bool bypass_prefix_cache = false;
};

enum class EndReason : uint8_t {
  kLength,
  // One of the model's end ids, or of the sequence's own.
  kEosToken,
  kCancelled,
  // kGroupLossesMax groups were lost while it was in a step and got no further (invariant
  // scope.one).
  kGroupLosses,
  // The group that formed has a smaller pool, which cannot hold the sequence.
  kPoolShrank,
};

// A token of the log, confirmed by a step.
struct Emitted {
  SequenceId id;
  TokenId token;
  // Row of the step's result that sampled it.
  uint32_t row;
};

// The end of a sequence. Its slot and blocks are already on their way back.
struct Ended {
  SequenceId id;
  EndReason reason;
};

// One row of a step's answer: what rank 0 sampled for a slot.
struct SampledRow {
  Slot slot;
  TokenId token;
};

struct StepTime {
  // Device time of the step.
  uint32_t device_us = 0;
};

}  // namespace weft::router
