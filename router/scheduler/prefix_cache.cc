#include "router/scheduler/prefix_cache.h"

#include <algorithm>

#include "common/check.h"

namespace weft::router {

void PrefixCache::Reset(uint32_t kv_blocks) {
  index_.clear();
  index_.reserve(kv_blocks);
  published_.assign(kv_blocks, false);
  keys_.assign(kv_blocks, Key{});
  ids_.assign(size_t{kv_blocks} * block_tokens_, 0);
}

BlockId PrefixCache::Find(uint32_t group, const BlockHash& hash,
                          absl::Span<const TokenId> ids) const {
  const auto it = index_.find(Key{hash, group});
  if (it == index_.end() || Ids(it->second) != ids) return kNoBlock;
  return it->second;
}

void PrefixCache::Publish(uint32_t group, const BlockHash& hash, absl::Span<const TokenId> ids,
                          BlockId block) {
  WEFT_CHECK(!published_[block]);
  WEFT_CHECK_EQ(ids.size(), block_tokens_);
  const Key key = {hash, group};
  if (!index_.try_emplace(key, block).second) return;
  published_[block] = true;
  keys_[block] = key;
  std::copy(ids.begin(), ids.end(), ids_.begin() + size_t{block} * block_tokens_);
}

void PrefixCache::Forget(BlockId block) {
  WEFT_CHECK(published_[block]);
  published_[block] = false;
  index_.erase(keys_[block]);
}

void PrefixCache::Save(std::vector<PublishedBlock>* published) const {
  published->clear();
  published->reserve(index_.size());
  for (BlockId block = 0; block < published_.size(); ++block) {
    if (!published_[block]) continue;
    published->push_back({block, keys_[block].group, keys_[block].hash});
  }
}

void PrefixCache::CheckInvariantsForTest() const {
  size_t count = 0;
  for (BlockId block = 0; block < published_.size(); ++block) {
    if (!published_[block]) continue;
    ++count;
    WEFT_CHECK_EQ(Find(keys_[block].group, keys_[block].hash, Ids(block)), block);
  }
  WEFT_CHECK_EQ(count, index_.size());
}

}  // namespace weft::router
