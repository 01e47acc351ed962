// The KV blocks of a group: who holds each one. A block is referenced by sequences, or cached
// (free, but holding a published prefix), or plainly free. Allocation takes plain blocks first,
// then the cached block whose last holder left longest ago. Reset() sizes it; nothing else
// allocates memory. Part of the scheduler, one thread.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "router/scheduler/prefix_cache.h"

namespace weft::router {

class BlockPool {
 public:
  // `cache` outlives the pool.
  explicit BlockPool(PrefixCache* cache) : cache_(*cache) {}

  // All blocks free, nothing cached. Resets the cache too.
  void Reset(uint32_t kv_blocks);

  uint32_t total() const { return static_cast<uint32_t>(references_.size()); }
  // Blocks that Allocate() can hand out, cached ones included.
  uint32_t free_count() const { return static_cast<uint32_t>(plain_.size()) + cached_count_; }
  uint32_t cached_count() const { return cached_count_; }
  // Since construction.
  uint64_t evicted_count() const { return evicted_count_; }
  // Grows whenever a block becomes free.
  uint64_t freed_count() const { return freed_count_; }

  // A block for one sequence to write. REQUIRES: free_count() > 0.
  BlockId Allocate();
  // One more sequence reads this published block.
  void Share(BlockId block);
  // One sequence less; the last one frees it. A sequence releases its blocks last one first, so
  // that the end of a prefix is evicted before its beginning.
  void Release(BlockId block);

  uint32_t references(BlockId block) const { return references_[block]; }

  // Lists and counts agree; for tests.
  void CheckInvariantsForTest() const;

 private:
  void LinkCached(BlockId block);
  void UnlinkCached(BlockId block);

  PrefixCache& cache_;
  std::vector<uint32_t> references_;
  // Free and not published; the last one goes first.
  std::vector<BlockId> plain_;
  // Free and published: a list, least recently released first. Plans are the only clock: what a
  // plan's events release stands behind what earlier ones released.
  BlockId oldest_cached_ = kNoBlock;
  BlockId newest_cached_ = kNoBlock;
  std::vector<BlockId> older_;
  std::vector<BlockId> newer_;
  uint32_t cached_count_ = 0;
  uint64_t evicted_count_ = 0;
  uint64_t freed_count_ = 0;
};

}  // namespace weft::router
