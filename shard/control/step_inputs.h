// The host state of one epoch (slots, sequences, block tables, positions, the running batch) and
// the translation of Prefill, Decode and FilterBatch into a StepBatch. This is the shard's wire
// parser: every field is checked before it is used, and an error names the field. Owned by the
// executor's epoch, used by the step thread only; never touches the device.
//
// A step's drops are applied first, then its block deltas, then its rows (invariant wire.once). A
// sequence whose last chunk is in step k decodes from step k + 1 on. An error leaves the state half
// changed: the epoch is over then.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "shard/control/block_tables.h"
#include "shard/step_batch.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// What a step is checked against. All > 0.
struct StepLimits {
  uint32_t vocab_size = 0;
  uint32_t context_tokens = 0;
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
  // Of every KV group, and of the pool that they share.
  uint32_t block_tokens = 0;
  uint32_t kv_blocks = 0;
  // By KV group: its window, or 0 for the whole context. At least one.
  std::vector<uint32_t> kv_windows = {0};
};

class StepInputs {
 public:
  explicit StepInputs(const StepLimits& limits);
  StepInputs(const StepInputs&) = delete;
  StepInputs& operator=(const StepInputs&) = delete;

  // Applies the step and fills `batch`, whose vectors keep their capacity. Rows: the running batch
  // in ascending slots, then the chunks in request order. INVALID_ARGUMENT names the bad field.
  // The caller has checked epoch and step number.
  absl::Status Prepare(const v1::PrefillRequest& request, StepBatch* batch);
  absl::Status Prepare(const v1::DecodeRequest& request, StepBatch* batch);
  absl::Status Prepare(const v1::FilterBatchRequest& request, StepBatch* batch);

  // Sequences that hold a slot, and those of them that decode.
  uint32_t held() const { return held_; }
  uint32_t running() const { return running_; }

 private:
  enum class SlotState : uint8_t {
    kFree,
    // Blocks came with this step; the first chunk must be in it too.
    kOpening,
    // Some chunks have run; more to come.
    kPrefilling,
    kRunning,
  };

  struct SlotEntry {
    SlotState state = SlotState::kFree;
    SequenceId sequence = 0;
    // Tokens in the KV cache after the steps prepared so far: position of the next row.
    Position next = 0;
    uint32_t prompt_len = 0;
    // Known ids as given for penalties; 0 = no penalties.
    uint32_t known_len = 0;
    // Its tokens are sampled from what masks allow.
    bool masked = false;
    BlockTables tables;
  };

  absl::Status ApplyHeader(const v1::StepHeader& header, StepBatch* batch);
  absl::Status ApplyDrops(const v1::StepHeader& header, StepBatch* batch);
  absl::Status ApplyBlockDeltas(const v1::StepHeader& header);
  absl::Status AddDecodeRows(const google::protobuf::RepeatedField<uint32_t>& skip_slots,
                             StepBatch* batch);
  absl::Status AddChunk(const v1::Chunk& chunk, const std::string& field, StepBatch* batch);
  absl::Status StartSequence(const v1::Chunk& chunk, const std::string& field, SlotEntry* slot,
                             StepBatch* batch);
  absl::Status CheckContinues(const v1::Chunk& chunk, const std::string& field,
                              const SlotEntry& slot) const;
  // Appends what of the chunk, whose rows are the batch's last, is scored.
  absl::Status AddScoring(const v1::Chunk& chunk, const std::string& field, StepBatch* batch) const;
  absl::Status CheckChunkIds(const v1::Chunk& chunk, const std::string& field) const;
  // Appends the rows' entry and its block tables after checking that they cover the rows.
  absl::Status AddRows(Slot slot, uint32_t token_count, const std::string& field, StepBatch* batch);
  absl::Status CheckBudget(const StepBatch& batch) const;

  const StepLimits limits_;
  const BlockTableLimits table_limits_;
  std::vector<SlotEntry> slots_;
  // Slots of state kOpening.
  uint32_t opening_ = 0;
  uint32_t held_ = 0;
  uint32_t running_ = 0;
  // Steps prepared, right or wrong.
  uint64_t prepared_ = 0;
};

}  // namespace weft::shard
