#include "router/scheduler/block_pool.h"

#include "common/check.h"

namespace weft::router {

void BlockPool::Reset(uint32_t kv_blocks) {
  cache_.Reset(kv_blocks);
  references_.assign(kv_blocks, 0);
  older_.assign(kv_blocks, kNoBlock);
  newer_.assign(kv_blocks, kNoBlock);
  plain_.clear();
  plain_.reserve(kv_blocks);
  // Block 0 goes first.
  for (BlockId block = kv_blocks; block-- > 0;) plain_.push_back(block);
  oldest_cached_ = newest_cached_ = kNoBlock;
  cached_count_ = 0;
  ++freed_count_;
}

BlockId BlockPool::Allocate() {
  BlockId block;
  if (!plain_.empty()) {
    block = plain_.back();
    plain_.pop_back();
  } else {
    block = oldest_cached_;
    WEFT_CHECK_NE(block, kNoBlock);
    UnlinkCached(block);
    cache_.Forget(block);
    ++evicted_count_;
  }
  WEFT_CHECK_EQ(references_[block], 0u);
  references_[block] = 1;
  return block;
}

void BlockPool::Share(BlockId block) {
  WEFT_CHECK(cache_.Holds(block));
  if (references_[block]++ == 0) UnlinkCached(block);
}

void BlockPool::Release(BlockId block) {
  WEFT_CHECK_GT(references_[block], 0u);
  --references_[block];
  if (references_[block] > 0) return;
  ++freed_count_;
  if (cache_.Holds(block)) {
    LinkCached(block);
  } else {
    plain_.push_back(block);
  }
}

void BlockPool::LinkCached(BlockId block) {
  older_[block] = newest_cached_;
  newer_[block] = kNoBlock;
  (newest_cached_ == kNoBlock ? oldest_cached_ : newer_[newest_cached_]) = block;
  newest_cached_ = block;
  ++cached_count_;
}

void BlockPool::UnlinkCached(BlockId block) {
  const BlockId older = older_[block];
  const BlockId newer = newer_[block];
  (older == kNoBlock ? oldest_cached_ : newer_[older]) = newer;
  (newer == kNoBlock ? newest_cached_ : older_[newer]) = older;
  --cached_count_;
}

void BlockPool::CheckInvariantsForTest() const {
  std::vector<bool> free(total(), false);
  for (const BlockId block : plain_) {
    WEFT_CHECK(!free[block] && references_[block] == 0 && !cache_.Holds(block));
    free[block] = true;
  }
  uint32_t cached = 0;
  for (BlockId block = oldest_cached_; block != kNoBlock; block = newer_[block]) {
    WEFT_CHECK(!free[block] && references_[block] == 0 && cache_.Holds(block));
    free[block] = true;
    ++cached;
  }
  WEFT_CHECK_EQ(cached, cached_count_);
  for (BlockId block = 0; block < total(); ++block) {
    WEFT_CHECK_EQ(free[block], references_[block] == 0);
  }
}

}  // namespace weft::router
