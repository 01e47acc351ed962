// Which groups are taken to know a prompt's beginning.

#include "router/groups/prefix_places.h"

#include <catch2/catch.hpp>
#include <vector>

namespace weft::router {
namespace {

std::vector<BlockHash> Chain(uint64_t seed, size_t blocks) {
  std::vector<BlockHash> chain;
  for (uint64_t i = 0; i < blocks; ++i) {
    chain.push_back({(seed + i) * 0x9E3779B97F4A7C15u, (seed << 32) + i + 1});
  }
  return chain;
}

std::vector<uint32_t> Find(const PrefixPlaces& places, const std::vector<BlockHash>& chain) {
  std::vector<uint32_t> blocks(3);
  places.Find(chain, absl::MakeSpan(blocks));
  return blocks;
}

TEST_CASE("A prompt's first blocks are found where they went", "[router][groups]") {
  PrefixPlaces places(256);
  const std::vector<BlockHash> chain = Chain(1, 8);
  CHECK(Find(places, chain) == std::vector<uint32_t>{0, 0, 0});
  places.Note(chain, 1);
  places.Note(absl::MakeConstSpan(chain).first(3), 2);
  CHECK(Find(places, chain) == std::vector<uint32_t>{0, 8, 3});
  CHECK(Find(places, Chain(2, 8)) == std::vector<uint32_t>{0, 0, 0});
}

TEST_CASE("Blocks behind a gap do not count", "[router][groups]") {
  PrefixPlaces places(256);
  const std::vector<BlockHash> chain = Chain(1, 8);
  places.Note(absl::MakeConstSpan(chain).subspan(1), 0);
  CHECK(Find(places, chain) == std::vector<uint32_t>{0, 0, 0});
}

TEST_CASE("A lost group's prefixes are forgotten, and no other's", "[router][groups]") {
  PrefixPlaces places(256);
  const std::vector<BlockHash> chain = Chain(1, 8);
  places.Note(chain, 0);
  places.Note(chain, 2);
  places.Forget(0);
  CHECK(Find(places, chain) == std::vector<uint32_t>{0, 0, 8});
}

TEST_CASE("The table is bounded: what was used longest ago goes", "[router][groups]") {
  PrefixPlaces places(64);
  const std::vector<BlockHash> kept = Chain(1, 4);
  for (uint64_t seed = 2; seed < 2'000; ++seed) {
    places.Note(Chain(seed * 1'000, 4), 1);
    places.Note(kept, 0);
  }
  CHECK(Find(places, kept)[0] == 4);
  uint32_t found = 0;
  for (uint64_t seed = 2; seed < 2'000; ++seed) found += Find(places, Chain(seed * 1'000, 4))[1];
  CHECK(found <= 64);
}

}  // namespace
}  // namespace weft::router
