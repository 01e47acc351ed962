// Which KV blocks hold which published prefix: an index from block hash and KV group to block, and
// the token ids of each published block to compare on a hit. It owns no block and counts no
// reference; that is BlockPool, which also asks it to forget a block that is taken for something
// else.
// Part of the scheduler, one thread. Find() and Forget() never allocate.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/scheduler/prefix_hash.h"
#include "router/scheduler/scheduler_state.h"

namespace weft::router {

inline constexpr BlockId kNoBlock = ~BlockId{0};

class PrefixCache {
 public:
  explicit PrefixCache(uint32_t block_tokens) : block_tokens_(block_tokens) {}

  // Forgets everything; from now on blocks are 0 .. kv_blocks - 1.
  void Reset(uint32_t kv_blocks);

  // The block published under `hash` for the KV of `group` if it holds exactly `ids` (block_tokens
  // of them), or kNoBlock.
  BlockId Find(uint32_t group, const BlockHash& hash, absl::Span<const TokenId> ids) const;

  // Makes `block`, whose KV is complete, findable. Does nothing when another block already holds
  // this prefix: then `block` stays private to its sequence. REQUIRES: `block` is not published.
  void Publish(uint32_t group, const BlockHash& hash, absl::Span<const TokenId> ids, BlockId block);

  bool Holds(BlockId block) const { return published_[block]; }
  void Forget(BlockId block);

  // All published blocks, by block.
  void Save(std::vector<PublishedBlock>* published) const;

  // The index and the blocks say the same; for tests.
  void CheckInvariantsForTest() const;

 private:
  struct Key {
    BlockHash hash;
    uint32_t group = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  // A key is already a keyed hash; the groups of one prefix are spread by an odd number.
  struct UseLowWord {
    size_t operator()(const Key& key) const {
      return key.hash.low + key.group * uint64_t{0x9e3779b97f4a7c15};
    }
  };

  absl::Span<const TokenId> Ids(BlockId block) const {
    return absl::MakeConstSpan(ids_).subspan(size_t{block} * block_tokens_, block_tokens_);
  }

  const uint32_t block_tokens_;
  absl::flat_hash_map<Key, BlockId, UseLowWord> index_;
  // By block.
  std::vector<bool> published_;
  std::vector<Key> keys_;
  std::vector<TokenId> ids_;
};

}  // namespace weft::router
