// All ranks of a group in one process, for tests: one model runner each, met through the real
// communicator, stepped together by one thread per rank. Checks that all ranks sample
// the same ids.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/limits.h"
#include "shard/comm/group_meeting.h"
#include "shard/device/cpu/runner.h"
#include "shard/device/cuda/runner.h"

namespace weft::shard {

struct GroupOptions {
  std::string model;
  // One GPU a rank instead of the CPU.
  bool cuda = false;
  uint32_t world = 1;
  NumberType dtype = NumberType::kFloat32;
  NumberType kv_dtype = NumberType::kAuto;
  std::string isa;
  uint32_t threads = 1;
  bool deterministic = false;
  // Rank 0 counts the rows of experts.
  bool expert_load = false;
  uint32_t running_max = 8;
  uint32_t step_tokens_max = 192;
  uint64_t kv_memory_bytes = 64u << 20;
  // Which operations of the forward are joined; CPU only.
  absl::Span<const PlanRule* const> cpu_rules = CpuPlanRules();
  // And on GPUs, which are not.
  std::vector<const PlanRule*> cuda_left_out;
};

class StepMaker;

class RankGroup {
 public:
  // Loads, begins an epoch and warms up; throws std::runtime_error with the status otherwise.
  explicit RankGroup(const GroupOptions& options);
  ~RankGroup();

  const DecoderSpec& spec() const { return files_->spec(); }
  uint32_t kv_blocks() const { return kv_blocks_; }
  // For steps of this group.
  StepMaker Maker() const;
  ModelRunner& rank(uint32_t rank) { return *runners_[rank]; }
  // REQUIRES: a group on the CPU.
  CpuModelRunner& cpu(uint32_t rank) { return static_cast<CpuModelRunner&>(*runners_[rank]); }

  // Ends the epoch and begins another, optionally on another instruction set.
  void NewEpoch(const std::string& isa);
  // Runs a step on all ranks and returns rank 0's result.
  StepResult Run(const StepBatch& batch);

 private:
  const GroupOptions options_;
  std::unique_ptr<ModelFiles> files_;
  std::vector<std::unique_ptr<ModelRunner>> runners_;
  std::vector<std::unique_ptr<GroupMeeting>> meetings_;
  Epoch epoch_ = 0;
  uint32_t kv_blocks_ = 0;
};

// Builds step batches as the step thread would: block tables, positions, decode rows.
class StepMaker {
 public:
  // `windows`: of each KV group.
  explicit StepMaker(uint32_t kv_blocks, uint32_t block_tokens = kKvBlockTokensCpu,
                     std::vector<uint32_t> windows = {0})
      : kv_blocks_(kv_blocks), block_tokens_(block_tokens), windows_(std::move(windows)) {}

  // A sequence enters slot `slot`.
  void Start(Slot slot, const SamplingParams& sampling, uint32_t prompt_len = 0,
             std::vector<TokenId> penalty_ids = {});
  // Its next tokens; samples one after the last of them when `sample`.
  void Chunk(Slot slot, const std::vector<TokenId>& ids, bool sample);
  // Of the chunk made last, rows from `first` on are scored: the tokens behind them are `targets`.
  void Score(uint32_t first, const std::vector<TokenId>& targets, uint32_t top);
  // One row with the token that the slot sampled last.
  void Decode(Slot slot);
  // The sequence leaves; its blocks are used again.
  void Drop(Slot slot);
  // Slot `slot` takes the first `tokens` tokens of `other`'s cache as its own prefix (a whole
  // number of blocks).
  void SharePrefix(Slot slot, Slot other, uint32_t tokens);

  // The step built so far.
  StepBatch Take();

 private:
  // Blocks first .. first + blocks.size() - 1 of a sequence in one KV group.
  struct Table {
    uint32_t first = 0;
    std::vector<BlockId> blocks;
  };
  struct Entry {
    uint32_t length = 0;
    std::vector<Table> tables;
    // In front: of another slot, which drops them last; and read by another, so that they stay
    // until this one is dropped.
    uint32_t shared_blocks = 0;
    uint32_t lent_blocks = 0;
  };

  StepSequence& AddRows(Slot slot, uint32_t count);
  // The tables of rows from position `start` to the entry's length.
  void AddTables(uint32_t start, Entry* entry);
  BlockId NextBlock();

  const uint32_t kv_blocks_;
  const uint32_t block_tokens_;
  const std::vector<uint32_t> windows_;
  uint32_t next_block_ = 0;
  std::vector<BlockId> free_;
  std::vector<Entry> entries_ = std::vector<Entry>(kRunningMax);
  StepNumber step_ = 0;
  StepBatch batch_;
};

}  // namespace weft::shard
