#include "shard/device/cuda/kv_cache.h"

#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

static_assert(kernels::cuda::kKvBlockTokens == kKvBlockTokensCuda);

absl::StatusOr<CudaKvCache> CudaKvCache::Create(const CudaShape& shape, uint32_t blocks) {
  CudaKvCache cache;
  cache.shape_ = shape;
  cache.blocks_ = blocks;
  WEFT_ASSIGN_OR_RETURN(cache.memory_, AllocateDevice(BlockBytes(shape) * blocks, "the KV pool"));
  if (!kernels::cuda::HasKvTensorMaps(cache.Layer(0))) return cache;
  cache.maps_.resize(shape.layers);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    WEFT_RETURN_IF_ERROR(
        CudaStatus(kernels::cuda::MakeKvTensorMaps(cache.Layer(layer), blocks, &cache.maps_[layer]),
                   "tensor maps of the KV pool"));
  }
  return cache;
}

kernels::cuda::KvLayer CudaKvCache::Layer(uint32_t layer) const {
  WEFT_CHECK_LT(layer, shape_.layers);
  const uint64_t part = uint64_t{blocks_} * LayerBlockBytes(shape_);
  uint8_t* const keys = memory_.data() + uint64_t{layer} * 2 * part;
  return {keys, keys + part, shape_.kv_heads, shape_.head_stride, shape_.type};
}

}  // namespace weft::shard
