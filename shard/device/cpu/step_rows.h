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
};

class StepRows {
 public:
  // Consecutive rows of one sequence, at most kRunRows of them.
  struct Run {
    uint32_t row = 0;
    uint32_t rows = 0;
    Position start = 0;
    // Block table of the sequence.
    const BlockId* block_ids = nullptr;
  };
  struct SampledRow {
    uint32_t row = 0;
    Slot slot = 0;
    // Index of the token to be sampled in its sequence.
    Position position = 0;
    const BlockId* block_ids = nullptr;
  };
  static constexpr uint32_t kRunRows = 32;

  explicit StepRows(const StepRowsLimits& limits);

  // Takes a step. `last_token` gives the token a slot sampled last. INTERNAL when the batch breaks
  // the limits: the step thread has checked it before.
  absl::Status Build(const StepBatch& batch, absl::FunctionRef<TokenId(Slot)> last_token);
  // Narrows rows and runs to the sampled rows; row i is then the i-th sampled one.
  void KeepSampled();

  uint32_t rows() const { return rows_; }
  // Largest position + 1 of the step.
  uint32_t positions_end() const { return positions_end_; }
  const std::vector<TokenId>& ids() const { return ids_; }
  const std::vector<Position>& positions() const { return positions_; }
  // Longest context first.
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<SampledRow>& sampled() const { return sampled_; }

 private:
  absl::Status AddSequence(const StepBatch& batch, const StepSequence& sequence,
                           absl::FunctionRef<TokenId(Slot)> last_token);

  const StepRowsLimits limits_;
  uint32_t rows_ = 0;
  uint32_t positions_end_ = 0;
  std::vector<TokenId> ids_;
  std::vector<Position> positions_;
  std::vector<Run> runs_;
  std::vector<SampledRow> sampled_;
};

}  // namespace weft::shard
