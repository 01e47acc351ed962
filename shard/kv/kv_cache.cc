#include "shard/kv/kv_cache.h"

#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace weft::shard {

uint64_t KvShape::part_bytes() const {
  return uint64_t{kv_heads} *
         static_cast<uint64_t>(kernels::cpu::KvHeadBlockBytes(type, int64_t{head_dim}));
}

uint64_t KvShape::block_bytes() const { return uint64_t{layers} * parts() * part_bytes(); }

absl::StatusOr<KvCache> KvCache::Create(const KvShape& shape, const KvGroups& groups,
                                        uint32_t blocks) {
  WEFT_CHECK_EQ(shape.layers, groups.block_layers);
  KvCache cache;
  cache.shape_ = shape;
  cache.groups_ = groups;
  cache.blocks_ = blocks;
  WEFT_ASSIGN_OR_RETURN(cache.memory_,
                        HostMemory::Map(shape.block_bytes() * blocks, "the KV pool (--kv-memory)"));
  return cache;
}

kernels::cpu::KvBlocks KvCache::Layer(uint32_t layer) const {
  WEFT_CHECK_LT(layer, groups_.places.size());
  const uint64_t part = shape_.part_bytes();
  uint8_t* const base = memory_.data() + groups_.places[layer].index * shape_.parts() * part;
  kernels::cpu::KvBlocks kv;
  kv.type = shape_.type;
  kv.head_dim = shape_.head_dim;
  kv.kv_heads = shape_.kv_heads;
  kv.k_pool = base;
  if (shape_.values) kv.v_pool = base + part;
  kv.block_stride_bytes = static_cast<int64_t>(shape_.block_bytes());
  return kv;
}

}  // namespace weft::shard
