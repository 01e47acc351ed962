#include "router/scheduler/prefix_cache.h"

#include <catch2/catch.hpp>
#include <vector>

#include "router/scheduler/block_pool.h"
#include "router/scheduler/prefix_hash.h"

namespace weft::router {
namespace {

const uint64_t kKey[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

uint64_t BigEndian(uint64_t value) { return __builtin_bswap64(value); }

TEST_CASE("HashBlock is SipHash-2-4 with 128 bits", "[router][scheduler]") {
  // openssl mac -macopt hexkey:000102..0f -macopt size:16 SIPHASH over the bytes 0 .. 15 and the
  // ids as little-endian words.
  const BlockHash parent = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  const std::vector<TokenId> odd = {1, 2, 3};
  CHECK(BigEndian(HashBlock(kKey, parent, odd).low) == 0xE15219EBA77BB9DFu);
  CHECK(BigEndian(HashBlock(kKey, parent, odd).high) == 0xE67D7D55C443902Fu);
  const std::vector<TokenId> even = {1, 2, 3, 0xfffffffe};
  CHECK(BigEndian(HashBlock(kKey, parent, even).low) == 0xA4EAA61C60A69B26u);
  CHECK(BigEndian(HashBlock(kKey, parent, even).high) == 0x61C88AEDDF253572u);
}

TEST_CASE("HashBlock depends on key, salt, history and ids", "[router][scheduler]") {
  const std::vector<TokenId> ids = {1, 2};
  const std::vector<TokenId> other = {2, 1};
  const uint64_t key[2] = {1, 0};
  const BlockHash hash = HashBlock(kKey, RootHash(0), ids);
  CHECK_FALSE(HashBlock(key, RootHash(0), ids) == hash);
  CHECK_FALSE(HashBlock(kKey, RootHash(1), ids) == hash);
  CHECK_FALSE(HashBlock(kKey, hash, ids) == hash);
  CHECK_FALSE(HashBlock(kKey, RootHash(0), other) == hash);
}

TEST_CASE("A hit compares the ids, not only the hash", "[router][scheduler]") {
  PrefixCache cache(2);
  cache.Reset(4);
  const std::vector<TokenId> ids = {5, 6};
  const std::vector<TokenId> other = {5, 7};
  const BlockHash hash = {1, 2};
  cache.Publish(0, hash, ids, 3);
  CHECK(cache.Find(0, hash, ids) == 3);
  CHECK(cache.Find(0, hash, other) == kNoBlock);
  CHECK(cache.Find(0, {1, 3}, ids) == kNoBlock);
}

TEST_CASE("The first block that publishes a prefix keeps it", "[router][scheduler]") {
  PrefixCache cache(1);
  cache.Reset(4);
  const std::vector<TokenId> ids = {5};
  const BlockHash hash = {1, 2};
  cache.Publish(0, hash, ids, 3);
  cache.Publish(0, hash, ids, 1);
  CHECK(cache.Find(0, hash, ids) == 3);
  CHECK_FALSE(cache.Holds(1));
  cache.Forget(3);
  CHECK(cache.Find(0, hash, ids) == kNoBlock);
  cache.CheckInvariantsForTest();
}

TEST_CASE("The pool hands out plain blocks, then the cached one released longest ago",
          "[router][scheduler]") {
  PrefixCache cache(1);
  BlockPool pool(&cache);
  pool.Reset(3);
  const std::vector<TokenId> ids = {5};
  CHECK(pool.Allocate(0, false) == 0);
  CHECK(pool.Allocate(0, false) == 1);
  CHECK(pool.Allocate(0, false) == 2);
  cache.Publish(0, {1, 0}, ids, 1);
  cache.Publish(0, {2, 0}, ids, 2);
  pool.Release(2, false);
  pool.Release(1, false);
  pool.Release(0, false);
  CHECK(pool.free_count() == 3);
  CHECK(pool.cached_count() == 2);
  // 2 is used again: it is younger than 1 afterwards.
  pool.Share(2, false);
  CHECK(pool.free_count() == 2);
  pool.Share(2, false);
  pool.Release(2, false);
  CHECK(pool.references(2) == 1);
  pool.Release(2, false);
  CHECK(pool.Allocate(0, false) == 0);
  CHECK(pool.Allocate(0, false) == 1);
  CHECK(pool.evicted_count() == 1);
  CHECK(cache.Find(0, {1, 0}, ids) == kNoBlock);
  CHECK(cache.Find(0, {2, 0}, ids) == 2);
  pool.CheckInvariantsForTest();
}

}  // namespace
}  // namespace weft::router
