// Sizes and small structs of the kernel headers: plain arithmetic, the same for all instruction
// sets, compiled once without wide-register flags.

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/packing.h"

namespace weft::kernels::cpu {
namespace {

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes of 16 x 32 packed weights.
int64_t PackedBlockBytes(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return 2048;
    case WeightType::kF16:
    case WeightType::kBf16:
      return 1024;
    case WeightType::kQ8_0:
      return 512 + 32;
    case WeightType::kQ4_0:
      return 256 + 32;
    case WeightType::kQ4_1:
      return 256 + 64;
  }
  return 0;
}

}  // namespace

bool IsQuantised(WeightType type) {
  return type == WeightType::kQ8_0 || type == WeightType::kQ4_0 || type == WeightType::kQ4_1;
}

int64_t SourceRowBytes(WeightType type, int64_t inputs) {
  switch (type) {
    case WeightType::kF32:
      return inputs * 4;
    case WeightType::kF16:
    case WeightType::kBf16:
      return inputs * 2;
    case WeightType::kQ8_0:
      return inputs / kBlockInputs * 34;
    case WeightType::kQ4_0:
      return inputs / kBlockInputs * 18;
    case WeightType::kQ4_1:
      return inputs / kBlockInputs * 20;
  }
  return 0;
}

int64_t TileCount(int64_t outputs) { return (outputs + kTileOutputs - 1) / kTileOutputs; }

int64_t PaddedInputs(int64_t inputs) { return RoundUp(inputs, kBlockInputs); }

int64_t PackedTileBytes(WeightType type, int64_t inputs) {
  return RoundUp(PaddedInputs(inputs) / kBlockInputs * PackedBlockBytes(type), kPackedAlignment);
}

int64_t PackedBytes(WeightType type, int64_t outputs, int64_t inputs) {
  return TileCount(outputs) * PackedTileBytes(type, inputs);
}

ActivationType ActivationFor(WeightType type, ActivationType wanted) {
  if (type == WeightType::kF32 || type == WeightType::kF16) return ActivationType::kF32;
  return wanted;
}

int64_t ActivationRowBytes(int64_t inputs) { return PaddedInputs(inputs) * 4; }

int64_t BlockSumCount(int64_t inputs) { return PaddedInputs(inputs) / kBlockInputs; }

Activations SliceRows(const Activations& all, int64_t begin, int64_t end) {
  Activations slice = all;
  slice.rows = end - begin;
  slice.values += begin * ActivationRowBytes(all.inputs);
  slice.block_sums += begin * BlockSumCount(all.inputs);
  return slice;
}

int64_t KvHeadBlockBytes(KvType type, int64_t head_dim) {
  return kKvBlockTokens * head_dim * (type == KvType::kF32 ? 4 : 2);
}

int64_t AttentionScratchBytes(int64_t head_dim) {
  // For each query of a group: its sums and the scores of a tile.
  constexpr int64_t kQueriesMax = 8;
  return kQueriesMax * (RoundUp(head_dim, 16) + kAttentionTile) * 4;
}

}  // namespace weft::kernels::cpu
