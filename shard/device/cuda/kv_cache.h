// The KV pool of a CUDA rank, one allocation of pieces [kv head][64 tokens][head_stride]: keys or
// values of one layer in one block; of latent attention there are keys alone. Where a model has one
// KV group, pieces of a layer lie side by side, [layer][K or V][block], which is what the kernels
// were measured with; where it has several, a block serves the layers of any of them: [block][layer
// of its group][K or V]. Kernels see no difference: they count pieces from a layer's first one, so
// that ids in device tables are block ids times IdStride(). Taken once, at load; owned by the model
// runner. Who owns which block is the scheduler's business.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/attention/kv_tensor_map.h"
#include "kernels/cuda/kv.h"
#include "shard/device/cuda/runtime/buffer.h"
#include "shard/device/cuda/shape.h"
#include "shard/kv/kv_groups.h"

namespace weft::shard {

class CudaKvCache {
 public:
  CudaKvCache() = default;

  // Bytes of one block: the layers of a group, K and V.
  static uint64_t BlockBytes(const CudaShape& shape, const KvGroups& groups) {
    return uint64_t{groups.block_layers} * shape.kv_parts() * PieceBytes(shape);
  }
  // What block ids are multiplied by in device tables.
  static uint32_t IdStride(const CudaShape& shape, const KvGroups& groups) {
    return groups.count() == 1 ? 1 : shape.kv_parts() * groups.block_layers;
  }
  static absl::StatusOr<CudaKvCache> Create(const CudaShape& shape, const KvGroups& groups,
                                            uint32_t blocks);

  uint32_t blocks() const { return blocks_; }
  uint32_t groups() const { return groups_.count(); }
  uint32_t GroupOf(uint32_t layer) const { return groups_.places[layer].group; }
  uint32_t WindowOf(uint32_t group) const { return groups_.groups[group].window_tokens; }
  kernels::cuda::KvLayer Layer(uint32_t layer) const;
  // How the chip's copy engine sees the layer; null where no kernel uses it.
  const kernels::cuda::KvTensorMaps* TensorMaps(uint32_t layer) const {
    return maps_.empty() ? nullptr : &maps_[layer];
  }

 private:
  static uint64_t PieceBytes(const CudaShape& shape) {
    return uint64_t{shape.kv_heads} * kernels::cuda::kKvBlockTokens * shape.head_stride *
           kernels::cuda::BytesOf(shape.type);
  }
  // From the keys of a layer's block to its values.
  uint64_t PiecesToValues() const { return groups() == 1 ? blocks_ : 1; }
  // In front of a layer's first piece.
  uint64_t PiecesBefore(uint32_t layer) const {
    return uint64_t{groups_.places[layer].index} * shape_.kv_parts() * PiecesToValues();
  }
  // Of keys, or of values, that ids may count from a layer's first on.
  uint32_t PiecesFrom(uint32_t layer) const;

  CudaShape shape_;
  KvGroups groups_;
  uint32_t blocks_ = 0;
  DeviceBuffer memory_;
  // Of every layer, or none.
  std::vector<kernels::cuda::KvTensorMaps> maps_;
};

}  // namespace weft::shard
