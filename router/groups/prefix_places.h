// Which groups probably hold which prompt prefixes: for each block of the prompts that were handed
// out last, the groups that got it. Approximate and bounded: a table of fixed size, in which a new
// block takes the place of the one that was used longest ago among a few; a group may have evicted
// what stands here, which costs that prompt its hit and nothing else. Part of the dispatcher, one
// thread; allocates in its constructor only.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "router/groups/placement.h"
#include "router/scheduler/prefix_hash.h"

namespace weft::router {

class PrefixPlaces {
 public:
  // Blocks that are remembered, 32 bytes each.
  static constexpr uint32_t kBlocksDefault = 1 << 16;

  // `blocks` is a power of two.
  explicit PrefixPlaces(uint32_t blocks = kBlocksDefault);

  // A prompt with these full blocks goes to `group`.
  void Note(absl::Span<const BlockHash> prompt, uint32_t group);
  // The group's cache is gone.
  void Forget(uint32_t group);
  // By group: of a prompt's first blocks, so many are there without a gap.
  void Find(absl::Span<const BlockHash> prompt, absl::Span<uint32_t> blocks_by_group) const;

 private:
  static_assert(kGroupsMax <= 32);
  struct Entry {
    BlockHash key;
    // A bit for each group; 0 = free.
    uint32_t groups = 0;
    uint64_t used = 0;
  };
  // Where a block may stand.
  static constexpr uint32_t kWays = 4;
  uint32_t Begin(const BlockHash& key) const {
    return static_cast<uint32_t>(key.low) & mask_ & ~(kWays - 1);
  }

  const uint32_t mask_;
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace weft::router
