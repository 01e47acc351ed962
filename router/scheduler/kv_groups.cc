#include "router/scheduler/kv_groups.h"

#include <limits>

#include "common/check.h"

namespace weft::router {

KvGroups::KvGroups(absl::Span<const uint32_t> windows, uint32_t block_tokens,
                   uint32_t chunk_tokens_max)
    : windows_(windows.begin(), windows.end()), block_tokens_(block_tokens) {
  WEFT_CHECK_GT(windows_.size(), 0u);
  WEFT_CHECK_LE(windows_.size(), kKvGroupsMax);
  WEFT_CHECK_GT(block_tokens, 0u);
  for (const uint32_t window : windows_) {
    uint64_t blocks = std::numeric_limits<uint32_t>::max();
    if (window != 0) {
      any_window_ = true;
      // The positions that the chunk reads before itself, itself, and what its first block holds
      // besides.
      const uint64_t tokens = uint64_t{window} - 1 + chunk_tokens_max + block_tokens - 1;
      blocks = std::min(blocks, (tokens + block_tokens - 1) / block_tokens);
    }
    tables_max_.push_back(static_cast<uint32_t>(blocks));
  }
}

uint64_t KvGroups::SequenceMax(uint32_t blocks) const {
  uint64_t sum = 0;
  for (uint32_t group = 0; group < count(); ++group) sum += TableMax(group, blocks);
  return sum;
}

uint32_t KvGroups::LongestIn(uint32_t pool_blocks, uint32_t blocks_max) const {
  // What a sequence holds never falls with its length.
  uint32_t low = 0;
  uint32_t high = blocks_max;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (SequenceMax(middle) <= pool_blocks) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace weft::router
