#include "shard/model/warmup_batch.h"

#include <cstddef>

namespace weft::shard {

StepBatch MakeWarmupBatch(const WarmupShape& shape, uint32_t block_tokens, uint32_t pool_blocks) {
  StepBatch batch;
  const uint32_t blocks = (shape.start + shape.tokens + block_tokens - 1) / block_tokens;
  for (uint32_t slot = 0; slot < shape.rows; ++slot) {
    batch.starts.push_back(
        SequenceStart{slot, SequenceId{slot}, shape.tokens, SamplingParams{}, {}});
    StepSequence sequence;
    sequence.slot = slot;
    sequence.token_begin = slot * shape.tokens;
    sequence.token_count = shape.tokens;
    sequence.start = shape.start;
    sequence.block_begin = slot * blocks;
    sequence.block_count = blocks;
    sequence.from_last_sample = shape.from_last_sample;
    sequence.sample = true;
    batch.sequences.push_back(sequence);
    for (uint32_t i = 0; i < blocks; ++i) {
      batch.block_ids.push_back((slot * blocks + i) % pool_blocks);
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
