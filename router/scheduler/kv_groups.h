// How many KV blocks a sequence needs in each KV group of the model: layers that see the whole
// context keep every block, layers with a window keep what the window still covers. Immutable
// arithmetic, made once from the scheduler's settings and read by its thread only; it owns no
// block.
//
// A query at position p of a group with window w sees positions p - w + 1 .. p. A chunk of n tokens
// that starts at s therefore needs the blocks of positions s - w + 1 .. s + n - 1: a table never
// has to hold more than a window, the largest chunk and two blocks, however long the sequence is.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router {

// KV groups of a model.
inline constexpr uint32_t kKvGroupsMax = 16;

class KvGroups {
 public:
  // `windows` in tokens, by group; 0: the whole context. No chunk has more than `chunk_tokens_max`
  // tokens. REQUIRES: 1 .. kKvGroupsMax groups.
  KvGroups(absl::Span<const uint32_t> windows, uint32_t block_tokens, uint32_t chunk_tokens_max);

  uint32_t count() const { return static_cast<uint32_t>(windows_.size()); }
  bool has_window(uint32_t group) const { return windows_[group] != 0; }
  bool any_window() const { return any_window_; }

  // The first block that a query at `position`, or a later one, reads.
  uint32_t FirstNeeded(uint32_t group, Position position) const {
    const uint32_t window = windows_[group];
    return window == 0 || position < window ? 0 : (position - window + 1) / block_tokens_;
  }
  // The first position whose query, and all later ones, do not read `block`.
  // REQUIRES: the group has a window.
  uint64_t EndOfUse(uint32_t group, uint32_t block) const {
    return (uint64_t{block} + 1) * block_tokens_ + windows_[group] - 1;
  }
  // The most blocks that a table holds at a time, of a sequence of so many blocks.
  uint32_t TableMax(uint32_t group, uint32_t blocks) const {
    return std::min(blocks, tables_max_[group]);
  }
  // The same over all groups.
  uint64_t SequenceMax(uint32_t blocks) const;

  // The most blocks that a sequence may have which a pool of `pool_blocks` can hold alone; at most
  // `blocks_max`.
  uint32_t LongestIn(uint32_t pool_blocks, uint32_t blocks_max) const;

 private:
  const std::vector<uint32_t> windows_;
  const uint32_t block_tokens_;
  bool any_window_ = false;
  // By group; without a window no limit.
  std::vector<uint32_t> tables_max_;
};

}  // namespace weft::router
