#include "shard/device/cuda/kv_cache.h"

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

static_assert(kernels::cuda::kKvBlockTokens == kKvBlockTokensCuda);

absl::StatusOr<CudaKvCache> CudaKvCache::Create(const CudaShape& shape, const KvGroups& groups,
                                                uint32_t blocks) {
  CudaKvCache cache;
  cache.shape_ = shape;
  cache.groups_ = groups;
  cache.blocks_ = blocks;
  WEFT_ASSIGN_OR_RETURN(cache.memory_,
                        AllocateDevice(BlockBytes(shape, groups) * blocks, "the KV pool"));
  if (shape.latent || !kernels::cuda::HasKvTensorMaps(cache.Layer(0))) return cache;
  cache.maps_.resize(shape.layers);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    WEFT_RETURN_IF_ERROR(
        CudaStatus(kernels::cuda::MakeKvTensorMaps(cache.Layer(layer), cache.PiecesFrom(layer),
                                                   &cache.maps_[layer]),
                   "tensor maps of the KV pool"));
  }
  return cache;
}

uint32_t CudaKvCache::PiecesFrom(uint32_t layer) const {
  if (groups() == 1) return blocks_;
  // The last block's values end at the pool's end or, in front of the last layer, before it.
  const uint64_t all = uint64_t{blocks_} * IdStride(shape_, groups_);
  return static_cast<uint32_t>(all - PiecesBefore(layer) - PiecesToValues());
}

kernels::cuda::KvLayer CudaKvCache::Layer(uint32_t layer) const {
  WEFT_CHECK_LT(layer, groups_.places.size());
  const uint64_t piece = PieceBytes(shape_);
  uint8_t* const keys = memory_.data() + PiecesBefore(layer) * piece;
  uint8_t* const values = shape_.latent ? nullptr : keys + PiecesToValues() * piece;
  return {keys, values, shape_.kv_heads, shape_.head_stride, shape_.type};
}

}  // namespace weft::shard
