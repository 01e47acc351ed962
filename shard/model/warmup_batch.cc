#include "shard/model/warmup_batch.h"

#include <cstddef>

namespace weft::shard {

StepBatch MakeWarmupBatch(const WarmupShape& shape, const WarmupPool& pool) {
  StepBatch batch;
  batch.kv_groups = pool.kv_groups;
  const uint32_t blocks = (shape.start + shape.tokens + pool.block_tokens - 1) / pool.block_tokens;
  for (uint32_t slot = 0; slot < shape.rows; ++slot) {
    batch.starts.push_back(
        SequenceStart{slot, SequenceId{slot}, shape.tokens, SamplingParams{}, {}});
    StepSequence sequence;
    sequence.slot = slot;
    sequence.token_begin = slot * shape.tokens;
    sequence.token_count = shape.tokens;
    sequence.start = shape.start;
    sequence.from_last_sample = shape.from_last_sample;
    sequence.sample = true;
    batch.sequences.push_back(sequence);
    for (uint32_t group = 0; group < pool.kv_groups; ++group) {
      batch.tables.push_back({0, static_cast<uint32_t>(batch.block_ids.size()), blocks});
      for (uint32_t i = 0; i < blocks; ++i) {
        batch.block_ids.push_back(static_cast<BlockId>(batch.block_ids.size() % pool.blocks));
      }
    }
  }
  batch.ids.resize(size_t{shape.rows} * shape.tokens, shape.from_last_sample ? kNoToken : 0);
  return batch;
}

absl::Status CheckWarmupResult(const StepResult& result) {
  if (result.invalid_rows.empty()) return absl::OkStatus();
  return absl::DataLossError(
      "the model answers ordinary tokens with logits of NaN or infinity: there are NaN or infinity "
      "in its weights, or numbers too large for --dtype; download or convert the model again, or "
      "try --dtype float32");
}

}  // namespace weft::shard
