// What the kernels of a step read that the host knows: ids, positions, lengths, block tables and
// sampling parameters, packed into one pinned buffer and copied to the device at once. Where each
// part lies follows from a few counts (StepShape), so that a captured graph finds them again in
// every step of its shape. Owned by CudaOps, device thread only. Two buffers take turns: the copy
// of a step may still be under way while the next one is packed.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/memory_parts.h"
#include "kernels/cuda/sampling/sampler.h"
#include "shard/device/cuda/runtime/buffer.h"
#include "shard/device/cuda/slot_table.h"
#include "shard/device/cuda/workspace.h"
#include "shard/step_batch.h"

namespace weft::shard {

// What a step launches depends on these alone.
struct StepShape {
  // Token rows: first one for each decoding sequence, then those of prompt chunks.
  uint32_t rows = 0;
  // Sequences that decode: their rows are 0 .. decode_rows - 1.
  uint32_t decode_rows = 0;
  // Sequences with a prompt chunk, after the decoding ones.
  uint32_t chunks = 0;
  // Rows of which a token is sampled.
  uint32_t sampled = 0;
  // Rows of which it is known which token comes behind them.
  uint32_t scored = 0;
  // kernels::cuda::SamplerFeature bits of all sampled rows.
  uint32_t features = 0;

  uint32_t sequences() const { return decode_rows + chunks; }
  // Every row samples: nothing to gather.
  bool decode_only() const { return chunks == 0; }
};

// Device addresses of the parts; the counts are those of StepShape.
struct StepInputsOnDevice {
  const uint32_t* ids = nullptr;                         // [rows]
  const uint32_t* positions = nullptr;                   // [rows]
  const uint32_t* row_sequences = nullptr;               // [rows], kNoSequence in padding
  const uint32_t* row_slots = nullptr;                   // [rows]
  const uint32_t* context_lengths = nullptr;             // [sequences]
  const uint32_t* chunk_row_begin = nullptr;             // [chunks + 1]
  const uint32_t* sampled_rows = nullptr;                // [sampled]
  const uint32_t* table_begin = nullptr;                 // [KV groups * sequences + 1]
  const kernels::cuda::SamplingRow* sampling = nullptr;  // [sampled]
  const uint32_t* scored_rows = nullptr;                 // [scored]
  const uint32_t* targets = nullptr;                     // [scored]
  const kernels::cuda::SamplingRow* scoring = nullptr;   // [scored]
  const uint32_t* block_ids = nullptr;
};

class StepUpload {
 public:
  // Bytes of the largest step.
  static uint64_t Bytes(const CudaLimits& limits);
  static absl::StatusOr<StepUpload> Create(const CudaLimits& limits);

  // Packs `batch`, its decode rows padded to `decode_rows` (a batch without chunks only), and says
  // its shape. `slots` have this step's starts already. INVALID_ARGUMENT when it breaks the limits
  // (the step thread has checked it before): nothing has reached the device then.
  absl::StatusOr<StepShape> Pack(const StepBatch& batch, uint32_t decode_rows,
                                 const SlotTable& slots);

  // What to copy: from the buffer that Pack filled last.
  const uint8_t* data() const { return buffers_[filled_].data(); }
  uint64_t bytes() const { return bytes_; }

  // Where the parts of such a step lie when it was copied to `base`.
  StepInputsOnDevice Parts(const StepShape& shape, const uint8_t* base) const;

 private:
  static void PackScorings(const StepBatch& batch, const StepInputsOnDevice& parts);
  // Block tables, those of a group side by side, and where the next part of memory begins.
  void PackTables(const StepBatch& batch, const StepShape& shape, const StepInputsOnDevice& parts,
                  MemoryParts* memory) const;

  CudaLimits limits_;
  std::array<PinnedBuffer, 2> buffers_;
  int filled_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace weft::shard
