#include "shard/device/cuda/step_upload.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/memory_parts.h"
#include "common/status.h"
#include "kernels/cuda/elementwise/embedding.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/kv.h"

namespace weft::shard {
namespace {

using kernels::cuda::kKvBlockTokens;
using kernels::cuda::kNoSamplingRow;
using kernels::cuda::kNoSequence;
using kernels::cuda::kTakeLastSample;
using kernels::cuda::SamplingRow;

constexpr uint64_t kPartAlignment = 16;

StepInputsOnDevice TakeParts(const StepShape& shape, uint32_t kv_groups, MemoryParts* memory) {
  const uint64_t tables = uint64_t{shape.sequences()} * kv_groups;
  StepInputsOnDevice parts;
  parts.ids = memory->Take<uint32_t>(shape.rows);
  parts.positions = memory->Take<uint32_t>(shape.rows);
  parts.row_sequences = memory->Take<uint32_t>(shape.rows);
  parts.row_slots = memory->Take<uint32_t>(shape.rows);
  parts.context_lengths = memory->Take<uint32_t>(shape.sequences());
  parts.chunk_row_begin = memory->Take<uint32_t>(uint64_t{shape.chunks} + 1);
  parts.sampled_rows = memory->Take<uint32_t>(shape.sampled);
  parts.table_begin = memory->Take<uint32_t>(tables + 1);
  parts.sampling = memory->Take<SamplingRow>(shape.sampled);
  parts.scored_rows = memory->Take<uint32_t>(shape.scored);
  parts.targets = memory->Take<uint32_t>(shape.scored);
  parts.scoring = memory->Take<SamplingRow>(shape.scored);
  parts.block_ids = memory->Take<uint32_t>(0);
  return parts;
}

// Parts laid over the host's own buffer may be written.
template <typename T>
T* Writable(const T* part) {
  return const_cast<T*>(part);
}

// The tables of a sequence lie in the batch, and reach to position end - 1.
bool TablesCover(const StepBatch& batch, size_t sequence, uint64_t end, const CudaLimits& limits) {
  for (uint32_t group = 0; group < limits.kv_groups; ++group) {
    const StepTable& table = batch.table(sequence, group);
    const uint64_t blocks = uint64_t{table.first} + table.count;
    if (uint64_t{table.begin} + table.count > batch.block_ids.size() ||
        blocks > limits.blocks_per_sequence() || blocks * kKvBlockTokens < end) {
      return false;
    }
  }
  return true;
}

absl::Status CheckScorings(const StepBatch& batch, const CudaLimits& limits) {
  uint64_t targets = 0;
  for (const StepScoring& scoring : batch.scorings) {
    if (scoring.sequence >= batch.sequences.size() || scoring.begin != targets ||
        uint64_t{scoring.first} + scoring.count > batch.sequences[scoring.sequence].token_count) {
      return absl::InvalidArgumentError("scored rows outside the step");
    }
    targets += scoring.count;
  }
  if (targets != batch.targets.size() || targets > limits.step_tokens_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("step of ", targets, " scored rows and ", batch.targets.size(), " targets"));
  }
  return absl::OkStatus();
}

absl::Status CheckLimits(const StepBatch& batch, const CudaLimits& limits) {
  if (batch.ids.size() > limits.step_tokens_max || batch.sequences.size() > limits.running_max ||
      batch.block_ids.size() > limits.block_ids_max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step of ", batch.ids.size(), " tokens, ", batch.sequences.size(), " sequences and ",
        batch.block_ids.size(), " blocks; at most ", limits.step_tokens_max, ", ",
        limits.running_max, " and ", limits.block_ids_max()));
  }
  if (batch.kv_groups != limits.kv_groups ||
      batch.tables.size() != batch.sequences.size() * batch.kv_groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("step with ", batch.tables.size(), " block tables of ", batch.kv_groups,
                     " KV groups; expected ", limits.kv_groups, " for each sequence"));
  }
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const StepSequence& sequence = batch.sequences[i];
    const uint64_t end = uint64_t{sequence.start} + sequence.token_count;
    if (sequence.token_count == 0 || end > limits.context_tokens ||
        sequence.slot >= limits.running_max ||
        uint64_t{sequence.token_begin} + sequence.token_count > batch.ids.size() ||
        !TablesCover(batch, i, end, limits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence ", sequence.sequence, ": rows or blocks out of range"));
    }
  }
  return CheckScorings(batch, limits);
}

// A prompt's rows go through one kind of attention, decode rows through another; with
// `deterministic` all through the first.
bool IsChunk(const StepSequence& sequence, bool deterministic) {
  return deterministic || !sequence.from_last_sample;
}

absl::StatusOr<StepShape> ShapeOf(const StepBatch& batch, const SlotTable& slots,
                                  bool deterministic) {
  StepShape shape;
  shape.rows = static_cast<uint32_t>(batch.ids.size());
  shape.scored = static_cast<uint32_t>(batch.targets.size());
  for (const StepSequence& sequence : batch.sequences) {
    if (IsChunk(sequence, deterministic)) {
      ++shape.chunks;
    } else if (shape.chunks > 0 || sequence.token_count != 1) {
      return absl::InvalidArgumentError("decode rows must come first, one a sequence");
    } else {
      ++shape.decode_rows;
    }
    if (!sequence.sample) continue;
    if (!slots.Holds(sequence.slot)) {
      return absl::InvalidArgumentError(absl::StrCat("slot ", sequence.slot, " holds no sequence"));
    }
    ++shape.sampled;
    shape.features |= slots.Features(sequence.slot);
    if (sequence.masked) shape.features |= kernels::cuda::kSamplerAdjustments;
  }
  return shape;
}

// Padding rows: a token that exists, in no sequence, of which nothing is sampled.
void Pad(const StepShape& used, const StepShape& shape, const StepInputsOnDevice& parts) {
  SamplingRow none;
  none.slot = kNoSamplingRow;
  for (uint32_t row = used.rows; row < shape.rows; ++row) {
    Writable(parts.ids)[row] = 0;
    Writable(parts.positions)[row] = 0;
    Writable(parts.row_sequences)[row] = kNoSequence;
    Writable(parts.row_slots)[row] = 0;
    Writable(parts.context_lengths)[row] = 0;
    Writable(parts.sampled_rows)[row] = row;
    Writable(parts.sampling)[row] = none;
  }
}

}  // namespace

uint64_t StepUpload::Bytes(const CudaLimits& limits) {
  StepShape largest;
  largest.rows = limits.step_tokens_max;
  largest.chunks = limits.running_max;
  largest.sampled = limits.running_max;
  largest.scored = limits.step_tokens_max;
  MemoryParts memory(nullptr, kPartAlignment);
  TakeParts(largest, limits.kv_groups, &memory);
  memory.Take<uint32_t>(limits.block_ids_max());
  return memory.used();
}

absl::StatusOr<StepUpload> StepUpload::Create(const CudaLimits& limits) {
  StepUpload upload;
  upload.limits_ = limits;
  for (PinnedBuffer& buffer : upload.buffers_) {
    WEFT_ASSIGN_OR_RETURN(buffer, AllocatePinned(Bytes(limits), "step inputs"));
  }
  return upload;
}

StepInputsOnDevice StepUpload::Parts(const StepShape& shape, const uint8_t* base) const {
  // Only addresses are taken: nothing is written there.
  MemoryParts memory(const_cast<uint8_t*>(base), kPartAlignment);
  return TakeParts(shape, limits_.kv_groups, &memory);
}

void StepUpload::PackTables(const StepBatch& batch, const StepShape& shape,
                            const StepInputsOnDevice& parts, MemoryParts* memory) const {
  uint32_t blocks = 0;
  uint32_t tables = 0;
  for (uint32_t group = 0; group < limits_.kv_groups; ++group) {
    // Padding rows have empty tables.
    for (uint32_t s = 0; s < shape.sequences(); ++s, ++tables) {
      const StepTable table = s < batch.sequences.size() ? batch.table(s, group) : StepTable{};
      Writable(parts.table_begin)[tables] = blocks;
      // Tables on the device begin at block 0; nobody reads what stands for the blocks that have
      // left.
      std::fill_n(Writable(parts.block_ids) + blocks, table.first, 0u);
      blocks += table.first;
      for (uint32_t i = 0; i < table.count; ++i) {
        Writable(parts.block_ids)[blocks++] =
            batch.block_ids[table.begin + i] * limits_.kv_id_stride;
      }
    }
  }
  Writable(parts.table_begin)[tables] = blocks;
  memory->Take<uint32_t>(blocks);
}

void StepUpload::PackScorings(const StepBatch& batch, const StepInputsOnDevice& parts) {
  uint32_t row = 0;
  for (const StepScoring& scoring : batch.scorings) {
    const uint32_t first = batch.sequences[scoring.sequence].token_begin + scoring.first;
    SamplingRow sampling;
    sampling.logprobs = 1;
    sampling.top_logprobs = scoring.top;
    for (uint32_t i = 0; i < scoring.count; ++i, ++row) {
      Writable(parts.scored_rows)[row] = first + i;
      Writable(parts.targets)[row] = batch.targets[row];
      Writable(parts.scoring)[row] = sampling;
    }
  }
}

absl::StatusOr<StepShape> StepUpload::Pack(const StepBatch& batch, uint32_t decode_rows,
                                           const SlotTable& slots) {
  WEFT_RETURN_IF_ERROR(CheckLimits(batch, limits_));
  WEFT_ASSIGN_OR_RETURN(const StepShape used, ShapeOf(batch, slots, limits_.deterministic));
  StepShape shape = used;
  if (decode_rows > used.decode_rows) {
    WEFT_CHECK(used.decode_only());
    shape.rows = shape.decode_rows = shape.sampled = decode_rows;
  }
  filled_ ^= 1;
  MemoryParts memory(buffers_[filled_].data(), kPartAlignment);
  const StepInputsOnDevice parts = TakeParts(shape, limits_.kv_groups, &memory);
  uint32_t row = 0;
  uint32_t sampled = 0;
  uint32_t masked = 0;
  uint32_t chunk = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const StepSequence& sequence = batch.sequences[s];
    const uint32_t end = sequence.start + sequence.token_count;
    if (IsChunk(sequence, limits_.deterministic)) Writable(parts.chunk_row_begin)[chunk++] = row;
    Writable(parts.context_lengths)[s] = end;
    for (uint32_t i = 0; i < sequence.token_count; ++i, ++row) {
      const TokenId id = batch.ids[sequence.token_begin + i];
      Writable(parts.ids)[row] = sequence.from_last_sample ? kTakeLastSample : id;
      Writable(parts.positions)[row] = sequence.start + i;
      Writable(parts.row_sequences)[row] = s;
      Writable(parts.row_slots)[row] = sequence.slot;
    }
    if (!sequence.sample) continue;
    Writable(parts.sampled_rows)[sampled] = row - 1;
    SamplingRow& sampling = Writable(parts.sampling)[sampled++];
    sampling = slots.Row(sequence.slot, end);
    if (sequence.masked) sampling.mask_row = masked++;
  }
  Writable(parts.chunk_row_begin)[chunk] = row;
  PackScorings(batch, parts);
  Pad(used, shape, parts);
  PackTables(batch, shape, parts, &memory);
  bytes_ = memory.used();
  return shape;
}

}  // namespace weft::shard
