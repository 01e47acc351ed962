// The pool of KV blocks: every part of every layer in every block has room of its own, nothing of
// it lies outside, and blocks keep what is written into them.

#include "shard/kv/kv_cache.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace weft::shard {
namespace {

using kernels::cpu::KvBlocks;
using kernels::cpu::KvType;

// Layers 0 .. 4: three of a window and two of the whole context, in blocks of three layers.
KvGroups Groups() {
  KvGroups groups;
  groups.groups = {{1024, {0, 1, 3}}, {0, {2, 4}}};
  groups.block_layers = 3;
  groups.places = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}};
  return groups;
}

KvShape Shape(KvType type, bool values) {
  KvShape shape;
  shape.type = type;
  shape.layers = 3;
  shape.kv_heads = 2;
  shape.head_dim = 6;
  shape.values = values;
  return shape;
}

// What a step may write: [begin, end) of one head's K or V in one block.
using Piece = std::pair<const uint8_t*, const uint8_t*>;

void AddPieces(const KvBlocks& kv, uint32_t blocks, std::vector<Piece>* pieces) {
  const int64_t head_bytes = kernels::cpu::KvHeadBlockBytes(kv.type, kv.head_dim);
  for (uint8_t* const pool : {kv.k_pool, kv.v_pool}) {
    if (pool == nullptr) continue;
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t head = 0; head < kv.kv_heads; ++head) {
        const uint8_t* const begin = pool + block * kv.block_stride_bytes + head * head_bytes;
        pieces->emplace_back(begin, begin + head_bytes);
      }
    }
  }
}

// The pieces of one group's layers, in the order of their addresses.
std::vector<Piece> PiecesOf(const KvCache& cache, const KvGroup& group) {
  std::vector<Piece> pieces;
  for (const uint32_t layer : group.layers) {
    AddPieces(cache.Layer(layer), cache.blocks(), &pieces);
  }
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

TEST_CASE("No two heads, parts, layers or blocks of a group share a byte of the KV pool",
          "[shard][kv]") {
  constexpr uint32_t kBlocks = 7;
  for (const KvType type : {KvType::kBf16, KvType::kF32, KvType::kF16}) {
    for (const bool values : {true, false}) {
      const KvShape shape = Shape(type, values);
      const KvGroups groups = Groups();
      const auto cache = KvCache::Create(shape, groups, kBlocks);
      REQUIRE(cache.ok());
      REQUIRE(cache->blocks() == kBlocks);
      for (uint32_t g = 0; g < groups.count(); ++g) {
        const KvGroup& group = groups.groups[g];
        for (const uint32_t layer : group.layers) {
          CHECK(cache->GroupOf(layer) == g);
          CHECK((cache->Layer(layer).v_pool != nullptr) == values);
        }
        const std::vector<Piece> pieces = PiecesOf(*cache, group);
        REQUIRE(pieces.size() == group.layers.size() * shape.parts() * kBlocks * shape.kv_heads);
        for (size_t i = 1; i < pieces.size(); ++i) {
          REQUIRE(pieces[i - 1].second <= pieces[i].first);
        }
        const auto spanned = static_cast<uint64_t>(pieces.back().second - pieces.front().first);
        CHECK(spanned <= shape.block_bytes() * kBlocks);
        // A group that fills its blocks leaves nothing between them.
        const bool full = group.layers.size() == groups.block_layers;
        if (full) CHECK(spanned == shape.block_bytes() * kBlocks);
      }
    }
  }
}

TEST_CASE("KV blocks lie at the same places for every group and keep what is written",
          "[shard][kv]") {
  constexpr int64_t kBlocks = 3;
  const KvShape shape = Shape(KvType::kBf16, true);
  const auto cache = KvCache::Create(shape, Groups(), kBlocks);
  REQUIRE(cache.ok());
  // The first layers of both groups: a block belongs to one group at a time.
  CHECK(cache->Layer(0).k_pool == cache->Layer(2).k_pool);
  const auto for_each_part = [&](const auto& call) {
    uint8_t mark = 0;
    for (const uint32_t layer : {0u, 1u, 3u}) {
      const KvBlocks kv = cache->Layer(layer);
      for (int64_t block = 0; block < kBlocks; ++block) {
        for (uint8_t* const pool : {kv.k_pool, kv.v_pool}) {
          call(pool + block * kv.block_stride_bytes, ++mark);
        }
      }
    }
  };
  for_each_part([&](uint8_t* part, uint8_t mark) { std::memset(part, mark, shape.part_bytes()); });
  for_each_part([&](const uint8_t* part, uint8_t mark) {
    CHECK(std::all_of(part, part + shape.part_bytes(),
                      [mark](uint8_t byte) { return byte == mark; }));
  });
}

TEST_CASE("A KV block has the bytes of its layers, heads and type", "[shard][kv]") {
  // 16 tokens of 6 numbers for 2 heads, K and V, 3 layers.
  CHECK(Shape(KvType::kBf16, true).block_bytes() == 16 * 6 * 2 * 2 * 2 * 3);
  CHECK(Shape(KvType::kF32, true).block_bytes() == 16 * 6 * 4 * 2 * 2 * 3);
  CHECK(Shape(KvType::kBf16, false).block_bytes() == 16 * 6 * 2 * 2 * 3);
}

TEST_CASE("A KV pool larger than any address space is refused by the flag that sizes it",
          "[shard][kv]") {
  KvShape wide = Shape(KvType::kF32, true);
  wide.head_dim = 1u << 16;
  const auto refused = KvCache::Create(wide, Groups(), 1u << 31);
  REQUIRE_FALSE(refused.ok());
  CHECK(absl::IsResourceExhausted(refused.status()));
  CHECK(refused.status().message().find("--kv-memory") != std::string::npos);
}

}  // namespace
}  // namespace weft::shard
