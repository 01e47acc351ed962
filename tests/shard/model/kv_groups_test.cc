// How layers are cut into KV groups: the least room wasted, then the fewest groups.

#include "shard/kv/kv_groups.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "shard/kv/kv_cache.h"

namespace weft::shard {
namespace {

// A layer for each entry: its window.
DecoderSpec SpecOf(const std::vector<uint32_t>& windows) {
  DecoderSpec spec;
  spec.layers = static_cast<uint32_t>(windows.size());
  spec.attention_kinds.clear();
  for (const uint32_t window : windows) {
    size_t kind = 0;
    while (kind < spec.attention_kinds.size() &&
           spec.attention_kinds[kind].window_tokens != window) {
      ++kind;
    }
    if (kind == spec.attention_kinds.size()) spec.attention_kinds.push_back({window, {}});
    spec.layer_attention.push_back(static_cast<uint8_t>(kind));
  }
  return spec;
}

// `window` layers of the window, then one of the whole context, `times` over.
std::vector<uint32_t> Alternating(uint32_t window, uint32_t times) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < times; ++i) {
    out.insert(out.end(), window, 1024);
    out.push_back(0);
  }
  return out;
}

// Every layer has a room of its own in a block of its group, and groups have one window.
void CheckPlaces(const DecoderSpec& spec, const KvGroups& groups) {
  REQUIRE(groups.places.size() == spec.layers);
  uint32_t layers = 0;
  for (uint32_t g = 0; g < groups.count(); ++g) {
    const KvGroup& group = groups.groups[g];
    REQUIRE(group.layers.size() <= groups.block_layers);
    for (uint32_t i = 0; i < group.layers.size(); ++i, ++layers) {
      const uint32_t layer = group.layers[i];
      CHECK(spec.attention(layer).window_tokens == group.window_tokens);
      CHECK(groups.places[layer].group == g);
      CHECK(groups.places[layer].index == i);
    }
  }
  CHECK(layers == spec.layers);
}

TEST_CASE("Layers of one window are one group without waste", "[shard][kv]") {
  for (const uint32_t window : {0u, 4096u}) {
    const DecoderSpec spec = SpecOf(std::vector<uint32_t>(32, window));
    const KvGroups groups = MakeKvGroups(spec);
    CheckPlaces(spec, groups);
    CHECK(groups.count() == 1);
    CHECK(groups.block_layers == 32);
    CHECK(groups.waste() == 0);
  }
  DecoderSpec plain;
  plain.layers = 3;
  CHECK(Describe(MakeKvGroups(plain)) == "1 group of 3 layers: 1 of the whole context");
}

TEST_CASE("Windows and whole contexts are cut into groups of the size that wastes least",
          "[shard][kv]") {
  struct Case {
    std::vector<uint32_t> windows;
    uint32_t groups;
    uint32_t layers;
  };
  const Case cases[] = {
      {Alternating(5, 8), 6, 8},    // Gemma 3 12B: 40 and 8
      {Alternating(1, 21), 2, 21},  // Gemma 2 9B
      {Alternating(1, 12), 2, 12},  // gpt_oss 20B
      {{0, 9, 9}, 3, 1},            //
      {{0, 9, 9, 9, 9}, 5, 1},     {{0, 0, 9, 9, 9, 9}, 3, 2},
  };
  for (const Case& c : cases) {
    const DecoderSpec spec = SpecOf(c.windows);
    const KvGroups groups = MakeKvGroups(spec);
    CheckPlaces(spec, groups);
    INFO(Describe(groups));
    CHECK(groups.count() == c.groups);
    CHECK(groups.block_layers == c.layers);
    CHECK(groups.waste() == 0);
  }
  CHECK(Describe(MakeKvGroups(SpecOf(Alternating(5, 8)))) ==
        "6 groups of 8 layers: 5 of window 1024, 1 of the whole context");
}

TEST_CASE("There are never more groups than the wire knows: then some room is wasted",
          "[shard][kv]") {
  // Gemma 3 27B: 52 and 10 layers, in one step 26 groups of 2 without waste.
  std::vector<uint32_t> windows = Alternating(5, 10);
  windows.insert(windows.end(), {1024, 1024});
  const DecoderSpec spec = SpecOf(windows);
  const KvGroups groups = MakeKvGroups(spec);
  CheckPlaces(spec, groups);
  CHECK(groups.count() <= kKvGroupsMax);
  CHECK(groups.waste() > 0);
  CHECK(groups.waste() < 0.1);
  // Any number of layers of two windows stays in bounds.
  for (uint32_t layers = 1; layers <= 128; ++layers) {
    for (uint32_t full = 0; full <= layers; full += 1 + layers / 7) {
      std::vector<uint32_t> some(layers, 64);
      std::fill_n(some.begin(), full, 0u);
      const KvGroups made = MakeKvGroups(SpecOf(some));
      REQUIRE(made.count() <= kKvGroupsMax);
      REQUIRE(made.waste() < 0.1);
    }
  }
}

TEST_CASE("Layers of one index share their place in a block, whichever group holds it",
          "[shard][kv]") {
  const DecoderSpec spec = SpecOf({0, 9, 0, 9, 9, 9});
  const KvGroups groups = MakeKvGroups(spec);
  REQUIRE(groups.count() == 3);
  REQUIRE(groups.block_layers == 2);
  const KvShape shape{kernels::cpu::KvType::kF32, groups.block_layers, 2, 8};
  const uint64_t part = shape.part_bytes();
  CHECK(shape.block_bytes() == 4 * part);
  const auto cache = KvCache::Create(shape, groups, 5);
  REQUIRE(cache.ok());
  const uint8_t* const base = cache->Layer(0).k_pool;
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    const kernels::cpu::KvBlocks kv = cache->Layer(layer);
    INFO("layer " << layer);
    CHECK(cache->GroupOf(layer) == groups.places[layer].group);
    CHECK(kv.k_pool == base + groups.places[layer].index * 2 * part);
    CHECK(kv.v_pool == kv.k_pool + part);
    CHECK(kv.block_stride_bytes == static_cast<int64_t>(4 * part));
  }
}

}  // namespace
}  // namespace weft::shard
