#include "router/scheduler/block_pool.h"

#include <algorithm>

#include "common/check.h"

namespace weft::router {

uint32_t BlockPool::Block::set_aside() const {
  if (references == 0) return 0;
  // The last holder that goes frees this block itself.
  return std::min<uint32_t>(rolling, references - 1);
}

void BlockPool::Reset(uint32_t kv_blocks) {
  cache_.Reset(kv_blocks);
  blocks_.assign(kv_blocks, Block{});
  plain_.clear();
  plain_.reserve(kv_blocks);
  // Block 0 goes first.
  for (BlockId block = kv_blocks; block-- > 0;) plain_.push_back(block);
  oldest_cached_ = newest_cached_ = kNoBlock;
  cached_count_ = set_aside_ = 0;
  used_in_.fill(0);
  cached_in_.fill(0);
  ++freed_count_;
}

BlockId BlockPool::Allocate(uint32_t group, bool rolls) {
  WEFT_CHECK_GT(free_count(), 0u);
  BlockId block;
  if (!plain_.empty()) {
    block = plain_.back();
    plain_.pop_back();
  } else {
    block = oldest_cached_;
    UnlinkCached(block);
    cache_.Forget(block);
    ++evicted_count_;
  }
  Block& taken = blocks_[block];
  WEFT_CHECK_EQ(taken.references, 0u);
  taken.references = 1;
  taken.rolling = rolls;
  taken.group = static_cast<uint16_t>(group);
  ++used_in_[group];
  return block;
}

void BlockPool::Share(BlockId block, bool rolls) {
  WEFT_CHECK(cache_.Holds(block));
  Block& shared = blocks_[block];
  set_aside_ -= shared.set_aside();
  if (shared.references++ == 0) {
    UnlinkCached(block);
    ++used_in_[shared.group];
  }
  shared.rolling += rolls;
  set_aside_ += shared.set_aside();
}

uint32_t BlockPool::CostOfShare(BlockId block, bool rolls) const {
  Block shared = blocks_[block];
  if (shared.references == 0) return 1;
  const uint32_t before = shared.set_aside();
  ++shared.references;
  shared.rolling += rolls;
  return shared.set_aside() - before;
}

void BlockPool::Release(BlockId block, bool rolls) {
  const uint32_t free_before = free_count();
  Block& released = blocks_[block];
  WEFT_CHECK_GT(released.references, 0u);
  set_aside_ -= released.set_aside();
  released.rolling -= rolls;
  --released.references;
  set_aside_ += released.set_aside();
  if (released.references == 0) {
    --used_in_[released.group];
    if (cache_.Holds(block)) {
      LinkCached(block);
    } else {
      plain_.push_back(block);
    }
  }
  if (free_count() > free_before) ++freed_count_;
}

void BlockPool::StopRolling(BlockId block) {
  Block& held = blocks_[block];
  WEFT_CHECK_GT(held.rolling, 0u);
  const uint32_t before = held.set_aside();
  --held.rolling;
  const uint32_t after = held.set_aside();
  set_aside_ -= before - after;
  if (after < before) ++freed_count_;
}

void BlockPool::DropCached() {
  while (oldest_cached_ != kNoBlock) {
    const BlockId block = oldest_cached_;
    UnlinkCached(block);
    cache_.Forget(block);
    plain_.push_back(block);
  }
}

void BlockPool::LinkCached(BlockId block) {
  Block& linked = blocks_[block];
  linked.older = newest_cached_;
  linked.newer = kNoBlock;
  (newest_cached_ == kNoBlock ? oldest_cached_ : blocks_[newest_cached_].newer) = block;
  newest_cached_ = block;
  ++cached_count_;
  ++cached_in_[linked.group];
}

void BlockPool::UnlinkCached(BlockId block) {
  const Block& linked = blocks_[block];
  (linked.older == kNoBlock ? oldest_cached_ : blocks_[linked.older].newer) = linked.newer;
  (linked.newer == kNoBlock ? newest_cached_ : blocks_[linked.newer].older) = linked.older;
  --cached_count_;
  --cached_in_[linked.group];
}

void BlockPool::Save(SchedulerState* state) const {
  state->kv_blocks = total();
  state->plain = plain_;
  state->cached.clear();
  state->cached.reserve(cached_count_);
  for (BlockId block = oldest_cached_; block != kNoBlock; block = blocks_[block].newer) {
    state->cached.push_back(block);
  }
  state->freed_count = freed_count_;
}

void BlockPool::Restore(const SchedulerState& state) {
  Reset(state.kv_blocks);
  plain_.assign(state.plain.begin(), state.plain.end());
  for (const PublishedBlock& block : state.published) {
    blocks_[block.block].group = static_cast<uint16_t>(block.group);
  }
  for (const BlockId block : state.cached) LinkCached(block);
  freed_count_ = state.freed_count;
}

void BlockPool::RestoreHolder(BlockId block, uint32_t group, bool rolls) {
  Block& held = blocks_[block];
  set_aside_ -= held.set_aside();
  held.group = static_cast<uint16_t>(group);
  if (held.references++ == 0) ++used_in_[group];
  held.rolling += rolls;
  set_aside_ += held.set_aside();
}

void BlockPool::CheckInvariantsForTest() const {
  std::vector<bool> free(total(), false);
  for (const BlockId block : plain_) {
    WEFT_CHECK(!free[block] && references(block) == 0 && !cache_.Holds(block));
    free[block] = true;
  }
  uint32_t cached = 0;
  for (BlockId block = oldest_cached_; block != kNoBlock; block = blocks_[block].newer) {
    WEFT_CHECK(!free[block] && references(block) == 0 && cache_.Holds(block));
    free[block] = true;
    ++cached;
  }
  WEFT_CHECK_EQ(cached, cached_count_);
  uint32_t set_aside = 0;
  std::array<uint32_t, kKvGroupsMax> used{};
  for (BlockId block = 0; block < total(); ++block) {
    const Block& held = blocks_[block];
    WEFT_CHECK_EQ(free[block], held.references == 0);
    WEFT_CHECK_LE(held.rolling, held.references);
    set_aside += held.set_aside();
    used[held.group] += held.references > 0;
  }
  WEFT_CHECK_EQ(set_aside, set_aside_);
  WEFT_CHECK_LE(uint64_t{set_aside}, uint64_t{plain_.size()} + cached_count_);
  WEFT_CHECK(used == used_in_);
}

}  // namespace weft::router
