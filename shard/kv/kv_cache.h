// The pool of KV blocks of one rank, and the one statement of its layout:
//
//   [group][layer][K or V][block][kv head][inner block]
//
// One group so far (all layers). The inner block, block tokens x head dim of one head, is the
// attention kernel's (kernels/cpu/attention.h: 16 tokens on CPU). All layers use the same block
// ids, so a block is a column through the pool. Taken once, at Warmup; owned by the model runner,
// written and read by compute threads through Layer(). Who owns which block is the scheduler's
// business.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kernels/cpu/attention.h"
#include "shard/device/host/host_memory.h"

namespace weft::shard {

struct KvShape {
  kernels::cpu::KvType type = kernels::cpu::KvType::kBf16;
  uint32_t layers = 0;
  // KV heads of this rank.
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;

  // Bytes of one block: all layers, K and V.
  uint64_t block_bytes() const;
  // Bytes of one block in one layer's K (or V) part.
  uint64_t layer_block_bytes() const;
};

class KvCache {
 public:
  KvCache() = default;

  // Takes memory for `blocks` blocks. Pages become resident as they are written.
  static absl::StatusOr<KvCache> Create(const KvShape& shape, uint32_t blocks);

  uint32_t blocks() const { return blocks_; }

  // The K and V parts of a layer; block_ids is left for the caller to set.
  kernels::cpu::KvBlocks Layer(uint32_t layer) const;

 private:
  KvShape shape_;
  uint32_t blocks_ = 0;
  HostMemory memory_;
};

}  // namespace weft::shard
