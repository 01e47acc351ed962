// The block tables of one slot, one for each KV group, as steps change and use them. Part of the
// wire's parser (step_inputs.h): every number of a delta is checked before it is used, and an error
// names the field. Owned by StepInputs, used by the step thread only.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "shard/step_batch.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// What tables are checked against. All > 0.
struct BlockTableLimits {
  uint32_t block_tokens = 0;
  // Of the pool, which all groups share.
  uint32_t kv_blocks = 0;
  uint32_t blocks_per_sequence_max = 0;
  // By KV group, 0 = the whole context.
  absl::Span<const uint32_t> windows;
};

class BlockTables {
 public:
  explicit BlockTables(uint32_t groups) : tables_(groups) {}

  // The sequence has left.
  void Clear();

  // Applies a delta of the step `step` (a number of its own for each step). `opens`: the sequence
  // begins with this step. REQUIRES: delta.group() is one.
  absl::Status Apply(const v1::BlockDelta& delta, const BlockTableLimits& limits, uint64_t step,
                     bool opens, const std::string& field);

  // Whether the tables hold all that rows of positions start .. end - 1 read and write: from the
  // beginning of the first row's window on.
  absl::Status CheckCover(Position start, Position end, const BlockTableLimits& limits,
                          const std::string& field, Slot slot) const;

  // Appends the tables, as far as position end - 1, to those of the batch.
  void AddTo(StepBatch* batch, Position end, uint32_t block_tokens) const;

 private:
  // Blocks first .. first + blocks.size() - 1 of the sequence.
  struct Table {
    uint32_t first = 0;
    std::vector<BlockId> blocks;
    // The last step that changed it.
    uint64_t changed_in = 0;
  };

  std::vector<Table> tables_;
};

}  // namespace weft::shard
