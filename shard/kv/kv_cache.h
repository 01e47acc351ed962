// The pool of KV blocks of one rank, and the one statement of its layout:
//
//   [block][layer of its group][K or V][kv head][inner block]
//
// The inner block, block tokens x head dim of one head, is the attention kernel's
// (kernels/cpu/attention.h: 16 tokens on CPU). Latent attention has no V. A block has room for the
// layers of one KV group (kv_groups.h), whichever of them holds it. Taken once, at Warmup; owned by
// the model runner, written and read by compute threads through Layer(). Who owns which block is
// the scheduler's business.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "kernels/cpu/attention.h"
#include "shard/device/host/host_memory.h"
#include "shard/kv/kv_groups.h"

namespace weft::shard {

struct KvShape {
  kernels::cpu::KvType type = kernels::cpu::KvType::kBf16;
  // Of a block: KvGroups::block_layers.
  uint32_t layers = 0;
  // KV heads of this rank.
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  // Values are kept beside keys: not with latent attention.
  bool values = true;

  // Bytes of one block: its layers, K and V.
  uint64_t block_bytes() const;
  // Bytes of a block's K (or V) of one layer.
  uint64_t part_bytes() const;
  uint64_t parts() const { return values ? 2 : 1; }
};

class KvCache {
 public:
  KvCache() = default;

  // Takes memory for `blocks` blocks. Pages become resident as they are written.
  static absl::StatusOr<KvCache> Create(const KvShape& shape, const KvGroups& groups,
                                        uint32_t blocks);

  uint32_t blocks() const { return blocks_; }

  // The K and V parts of a layer; the caller sets block_ids and first_block, those of a sequence in
  // the group of the layer.
  kernels::cpu::KvBlocks Layer(uint32_t layer) const;
  uint32_t GroupOf(uint32_t layer) const { return groups_.places[layer].group; }

 private:
  KvShape shape_;
  KvGroups groups_;
  uint32_t blocks_ = 0;
  HostMemory memory_;
};

}  // namespace weft::shard
