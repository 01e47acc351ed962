#include "router/groups/prefix_places.h"

#include <algorithm>

#include "common/check.h"

namespace weft::router {

PrefixPlaces::PrefixPlaces(uint32_t blocks) : mask_(blocks - 1), entries_(blocks) {
  WEFT_CHECK(blocks >= kWays && (blocks & mask_) == 0);
}

void PrefixPlaces::Note(absl::Span<const BlockHash> prompt, uint32_t group) {
  ++uses_;
  for (const BlockHash& key : prompt) {
    Entry* place = nullptr;
    for (uint32_t i = Begin(key); i < Begin(key) + kWays; ++i) {
      Entry& entry = entries_[i];
      if (entry.groups != 0 && entry.key == key) {
        place = &entry;
        break;
      }
      if (place == nullptr || entry.used < place->used) place = &entry;
    }
    if (!(place->key == key)) *place = {key, 0, 0};
    place->groups |= 1u << group;
    place->used = uses_;
  }
}

void PrefixPlaces::Forget(uint32_t group) {
  for (Entry& entry : entries_) {
    entry.groups &= ~(1u << group);
    if (entry.groups == 0) entry = Entry();
  }
}

void PrefixPlaces::Find(absl::Span<const BlockHash> prompt,
                        absl::Span<uint32_t> blocks_by_group) const {
  std::fill(blocks_by_group.begin(), blocks_by_group.end(), 0);
  uint32_t unbroken = ~uint32_t{0};
  for (const BlockHash& key : prompt) {
    uint32_t groups = 0;
    for (uint32_t i = Begin(key); i < Begin(key) + kWays; ++i) {
      if (entries_[i].key == key) groups |= entries_[i].groups;
    }
    unbroken &= groups;
    if (unbroken == 0) return;
    for (uint32_t g = 0; g < blocks_by_group.size(); ++g) {
      if ((unbroken >> g & 1) != 0) ++blocks_by_group[g];
    }
  }
}

}  // namespace weft::router
