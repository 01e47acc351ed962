// The rows of a step as the CPU kernels want them: token and position of each row, runs of rows of
// one sequence with their block tables, and attention cut into items of similar cost. Rebuilt by
// CpuOps for each step; its vectors have their capacity from the start (no allocation in a step).

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "shard/step_batch.h"

namespace weft::shard {

struct StepRowsLimits {
  uint32_t step_tokens_max = 0;
  uint32_t running_max = 0;
  uint32_t vocab = 0;
  uint32_t context_tokens = 0;
  uint32_t kv_blocks = 0;
  uint32_t kv_groups = 1;
};

class StepRows {
 public:
  // Consecutive rows of one sequence, at most kRunRows of them.
  struct Run {
    uint32_t row = 0;
    uint32_t rows = 0;
    Position start = 0;
    // Index of the sequence in the step, for Table().
    uint32_t sequence = 0;
  };
  // The blocks of a sequence in one KV group, from block `first` on.
  struct Table {
    uint32_t first = 0;
    const BlockId* block_ids = nullptr;
  };
  struct SampledRow {
    uint32_t row = 0;
    Slot slot = 0;
    // Index of the token to be sampled in its sequence.
    Position position = 0;
    uint32_t sequence = 0;
    bool masked = false;
  };
  // A row of which it is known which token comes behind it.
  struct ScoredRow {
    uint32_t row = 0;
    Position position = 0;
    uint32_t sequence = 0;
    TokenId target = 0;
    // Most likely tokens that are wanted.
    uint32_t top = 0;
  };
  static constexpr uint32_t kRunRows = 32;

  explicit StepRows(const StepRowsLimits& limits);

  // Takes a step. `last_token` gives the token a slot sampled last. INTERNAL when the batch breaks
  // the limits: the step thread has checked it before.
  absl::Status Build(const StepBatch& batch, absl::FunctionRef<TokenId(Slot)> last_token);
  Table table(uint32_t sequence, uint32_t group) const {
    return tables_[sequence * limits_.kv_groups + group];
  }
  // Narrows rows and runs to the sampled rows; row i is then the i-th sampled one.
  void KeepSampled();
  // The same with scored rows [begin, end).
  void KeepScored(uint32_t begin, uint32_t end);

  uint32_t rows() const { return rows_; }
  // Largest position + 1 of the step.
  uint32_t positions_end() const { return positions_end_; }
  const std::vector<TokenId>& ids() const { return ids_; }
  const std::vector<Position>& positions() const { return positions_; }
  // Longest context first.
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<SampledRow>& sampled() const { return sampled_; }
  // Ascending.
  const std::vector<ScoredRow>& scored() const { return scored_; }

 private:
  absl::Status AddSequence(const StepBatch& batch, uint32_t index,
                           absl::FunctionRef<TokenId(Slot)> last_token);
  absl::Status AddScorings(const StepBatch& batch);
  // Row `row` is from now on that one; rows come in order.
  void Keep(uint32_t row, Position position, uint32_t sequence);
  absl::Status AddTables(const StepBatch& batch, uint32_t index);

  const StepRowsLimits limits_;
  uint32_t rows_ = 0;
  uint32_t positions_end_ = 0;
  std::vector<TokenId> ids_;
  std::vector<Position> positions_;
  std::vector<Run> runs_;
  std::vector<SampledRow> sampled_;
  std::vector<ScoredRow> scored_;
  // Of each sequence, by group.
  std::vector<Table> tables_;
};

}  // namespace weft::shard
