// The KV pool of a CUDA rank: [layer][K or V][block][kv head][64 tokens][head_stride], one
// allocation. All layers use the same block ids, so a block is a column through the pool. Taken
// once, at load; owned by the model runner. Who owns which block is the scheduler's business.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/attention/kv_tensor_map.h"
#include "kernels/cuda/kv.h"
#include "shard/device/cuda/runtime/buffer.h"
#include "shard/device/cuda/shape.h"

namespace weft::shard {

class CudaKvCache {
 public:
  CudaKvCache() = default;

  // Bytes of one block: all layers, K and V.
  static uint64_t BlockBytes(const CudaShape& shape) {
    return uint64_t{shape.layers} * 2 * LayerBlockBytes(shape);
  }
  static absl::StatusOr<CudaKvCache> Create(const CudaShape& shape, uint32_t blocks);

  uint32_t blocks() const { return blocks_; }
  kernels::cuda::KvLayer Layer(uint32_t layer) const;
  // How the chip's copy engine sees the layer; null where no kernel uses it.
  const kernels::cuda::KvTensorMaps* TensorMaps(uint32_t layer) const {
    return maps_.empty() ? nullptr : &maps_[layer];
  }

 private:
  static uint64_t LayerBlockBytes(const CudaShape& shape) {
    return uint64_t{shape.kv_heads} * kernels::cuda::kKvBlockTokens * shape.head_stride *
           kernels::cuda::BytesOf(shape.type);
  }

  CudaShape shape_;
  uint32_t blocks_ = 0;
  DeviceBuffer memory_;
  // Of every layer, or none.
  std::vector<kernels::cuda::KvTensorMaps> maps_;
};

}  // namespace weft::shard
