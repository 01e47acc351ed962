// Sizes and small structs of the kernel headers: plain arithmetic, the same for all instruction
// sets, compiled once without wide-register flags.

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/packed_format.h"
#include "kernels/cpu/packing.h"

namespace weft::kernels::cpu {
namespace {

// Of attention: what is in scratch memory for each is its sums and the scores of a tile.
constexpr int64_t kQueriesMax = 8;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int64_t SourceRowBytes(WeightType type, int64_t inputs) {
  return inputs / FormatOf(type).elements * FormatOf(type).bytes;
}

int64_t TileCount(int64_t outputs) { return (outputs + kTileOutputs - 1) / kTileOutputs; }

int64_t PaddedInputs(int64_t inputs) { return RoundUp(inputs, kBlockInputs); }

int64_t PackedTileBytes(WeightType type, int64_t inputs) {
  const int64_t block = PackedBlockInputs(type);
  return RoundUp((inputs + block - 1) / block * PackedBlockBytes(type), kPackedAlignment);
}

int64_t PackedBytes(WeightType type, int64_t outputs, int64_t inputs) {
  return TileCount(outputs) * PackedTileBytes(type, inputs);
}

ActivationType ActivationFor(WeightType type, ActivationType wanted) {
  return PackedFormatOf(type).takes_bf16 ? wanted : ActivationType::kF32;
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
  return kQueriesMax * (RoundUp(head_dim, 16) + kAttentionTile) * 4;
}

int64_t LatentScratchBytes(int64_t latent_dim) {
  return kQueriesMax * (latent_dim * kKvBlockTokens + kAttentionTile) * 4;
}

}  // namespace weft::kernels::cpu
