// KV groups: which layers share block tables, and where in a block each of them lies. Layers of one
// window (a model has one number of KV heads and one head size) are cut into groups of equal layer
// count, so that a block has one size and one free list serves all groups; the last group of a
// window may have fewer layers, and the room for the others is wasted. Plain data made from the
// spec alone, the same on every rank; any thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/model/decoder_spec.h"

namespace weft::shard {

// The wire knows no more (proto/weft/shard/v1/shard.proto, KvGroup).
inline constexpr uint32_t kKvGroupsMax = 16;

struct KvGroup {
  // As AttentionKind::window_tokens.
  uint32_t window_tokens = 0;
  // Ascending.
  std::vector<uint32_t> layers;
};

struct KvGroups {
  // Where the keys and values of a layer are: its group, and its index among the layers of a block.
  struct Place {
    uint32_t group = 0;
    uint32_t index = 0;
  };

  std::vector<KvGroup> groups;
  // Layers that a block has room for: those of the largest group.
  uint32_t block_layers = 0;
  // By layer.
  std::vector<Place> places;

  uint32_t count() const { return static_cast<uint32_t>(groups.size()); }
  // By group.
  std::vector<uint32_t> windows() const;
  // Share of the pool that no layer uses.
  double waste() const;
};

// The size of a group is the one that wastes least room among those that make at most kKvGroupsMax
// groups; of several such, the largest, which makes the fewest tables. So a model whose layers have
// one window has one group of all layers, without waste. Windows in the order of their first
// layers.
KvGroups MakeKvGroups(const DecoderSpec& spec);

// "6 groups of 8 layers: 5 of window 1024, 1 of the whole context", one line without its end; with
// the waste where there is some.
std::string Describe(const KvGroups& groups);

}  // namespace weft::shard
