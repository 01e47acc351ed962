// The KV blocks of the pool that all KV groups share: who holds each one. A block is referenced by
// sequences (all through tables of one KV group), or cached (free, but holding a published prefix),
// or plainly free. Allocation takes plain blocks first, then the cached block whose last holder
// left longest ago. Reset() sizes it; nothing else allocates memory. Part of the scheduler, one
// thread.
//
// A holder that rolls will take another block whenever it gives one back (a long prompt on its way
// through a window). It must find one, also when somebody else still reads what it gave back: so
// for every block with a holder that rolls and another reader one free block is set aside. With
// that, giving back and taking one leaves free_count() as it was, whoever shares what.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "router/scheduler/kv_groups.h"
#include "router/scheduler/prefix_cache.h"
#include "router/scheduler/scheduler_state.h"

namespace weft::router {

class BlockPool {
 public:
  // `cache` outlives the pool.
  explicit BlockPool(PrefixCache* cache) : cache_(*cache) {}

  // All blocks free, nothing cached. Resets the cache too.
  void Reset(uint32_t kv_blocks);

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  // Blocks that Allocate() can hand out, cached ones included, those set aside not.
  uint32_t free_count() const {
    return static_cast<uint32_t>(plain_.size()) + cached_count_ - set_aside_;
  }
  uint32_t cached_count() const { return cached_count_; }
  // Referenced by sequences; and by KV group, as are those that are cached.
  uint32_t used_count() const {
    return total() - static_cast<uint32_t>(plain_.size()) - cached_count_;
  }
  uint32_t used_in(uint32_t group) const { return used_in_[group]; }
  uint32_t cached_in(uint32_t group) const { return cached_in_[group]; }
  // Since construction.
  uint64_t evicted_count() const { return evicted_count_; }
  // Grows whenever free_count() does.
  uint64_t freed_count() const { return freed_count_; }

  // A block for one sequence to write, for its table of `group`. REQUIRES: free_count() > 0.
  BlockId Allocate(uint32_t group, bool rolls);
  // One more sequence reads this published block.
  void Share(BlockId block, bool rolls);
  // What Share() takes from free_count().
  uint32_t CostOfShare(BlockId block, bool rolls) const;
  // One sequence less; the last one frees it. `rolls` as when it came. A sequence releases its
  // blocks last one first, so that the end of a prefix is evicted before its beginning.
  void Release(BlockId block, bool rolls);
  // One of the holders does not roll any more.
  void StopRolling(BlockId block);

  // Cached blocks become plain ones; of them the one that was released last is taken first.
  void DropCached();

  uint32_t references(BlockId block) const { return blocks_[block].references; }

  // Its part of a scheduler's state, and the way back. The cache is empty then, and of the blocks
  // in use only their number is known until each holder was named.
  void Save(SchedulerState* state) const;
  void Restore(const SchedulerState& state);
  void RestoreHolder(BlockId block, uint32_t group, bool rolls);

  // Lists and counts agree; for tests.
  void CheckInvariantsForTest() const;

 private:
  struct Block {
    uint32_t references = 0;
    // Holders that roll.
    uint16_t rolling = 0;
    // Of the table that it is, or was last, in.
    uint16_t group = 0;
    // While it is cached: its neighbours in the list.
    BlockId older = kNoBlock;
    BlockId newer = kNoBlock;

    // Free blocks that are set aside because of this one.
    uint32_t set_aside() const;
  };

  void LinkCached(BlockId block);
  void UnlinkCached(BlockId block);

  PrefixCache& cache_;
  std::vector<Block> blocks_;
  // Free and not published; the last one goes first.
  std::vector<BlockId> plain_;
  // Free and published: a list, least recently released first. Plans are the only clock: what a
  // plan's events release stands behind what earlier ones released.
  BlockId oldest_cached_ = kNoBlock;
  BlockId newest_cached_ = kNoBlock;
  uint32_t cached_count_ = 0;
  // Sum over the blocks.
  uint32_t set_aside_ = 0;
  std::array<uint32_t, kKvGroupsMax> used_in_{};
  std::array<uint32_t, kKvGroupsMax> cached_in_{};
  uint64_t evicted_count_ = 0;
  uint64_t freed_count_ = 0;
};

}  // namespace weft::router
