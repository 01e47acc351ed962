#include "router/scheduler/kv_groups.h"

#include <catch2/catch.hpp>
#include <vector>

#include "router/scheduler/block_pool.h"
#include "router/scheduler/block_table.h"

namespace weft::router {
namespace {

TEST_CASE("What a table must hold for any chunk is a window, the chunk and two blocks at most",
          "[router][scheduler]") {
  for (uint32_t block_tokens : {1u, 2u, 5u, 16u}) {
    for (uint32_t window : {1u, 2u, 7u, 16u, 33u}) {
      for (uint32_t chunk_max : {1u, 4u, 40u}) {
        const KvGroups groups({window}, block_tokens, chunk_max);
        uint32_t most = 0;
        for (uint32_t start = 0; start < 200; ++start) {
          // By hand: the blocks of the positions that the chunk's rows read and write.
          const uint32_t lowest = start + 1 > window ? start + 1 - window : 0;
          CHECK(groups.FirstNeeded(0, start) == lowest / block_tokens);
          most = std::max(most, (start + chunk_max - 1) / block_tokens - lowest / block_tokens + 1);
          const uint32_t first = groups.FirstNeeded(0, start);
          CHECK(groups.EndOfUse(0, first) > start);
          CHECK((first == 0 || groups.EndOfUse(0, first - 1) <= start));
        }
        CHECK(groups.TableMax(0, 1000) >= most);
        CHECK(groups.TableMax(0, 1000) <= (window + chunk_max) / block_tokens + 2);
      }
    }
  }
}

TEST_CASE("The longest sequence that a pool holds counts every group", "[router][scheduler]") {
  // Mistral-7B-v0.1's window on blocks of 16: any context fits a window, a chunk and two blocks.
  const KvGroups mistral({4096}, 16, 512);
  CHECK(mistral.SequenceMax(32768 / 16) <= (4096 + 512) / 16 + 2);
  CHECK(mistral.LongestIn((4096 + 512) / 16 + 2, 1u << 31) == 1u << 31);
  CHECK(mistral.LongestIn(100, 1u << 31) == 100);
  // Gemma-3-12B's: one group sees all, five see 1024 tokens.
  const KvGroups gemma({1024, 1024, 1024, 1024, 1024, 0}, 16, 512);
  const uint32_t windows = 5 * ((1023 + 512 + 15 + 15) / 16);
  CHECK(gemma.SequenceMax(50) == 6 * 50);
  CHECK(gemma.SequenceMax(2048) == windows + 2048);
  CHECK(gemma.LongestIn(windows + 2048, 1u << 31) == 2048);
  CHECK(gemma.LongestIn(301, 1u << 31) == 50);
  // One group without a window: as many as the pool has.
  CHECK(KvGroups({0}, 16, 512).LongestIn(1234, 1u << 31) == 1234);
}

TEST_CASE("A table tells what left and what came, and forgets what lies in front",
          "[router][scheduler]") {
  BlockTable table(3);
  table.Note(4, 40);
  table.Note(5, 50);
  table.SetRange(4, 6);
  table.Append(60);
  CHECK((table.untold_left() == 4 && table.untold_appended() == 3));
  CHECK((table[4] == 40 && table[5] == 50 && table[6] == 60));
  table.Told();
  CHECK(table.Leave() == 40);
  table.Append(70);
  CHECK((!table.Covers(4) && table.Covers(5) && table.Covers(7) && !table.Covers(8)));
  CHECK((table.first() == 5 && table.end() == 8 && table.size() == 3));
  CHECK((table[5] == 50 && table[6] == 60 && table[7] == 70));
  CHECK((table.untold_left() == 1 && table.untold_appended() == 1));
  table.Clear();
  CHECK((table.size() == 0 && table.untold_left() == 0 && table.untold_appended() == 0));
}

TEST_CASE("A holder that rolls finds a block for each that it gives back, whoever shares it",
          "[router][scheduler]") {
  PrefixCache cache(1);
  BlockPool pool(&cache);
  pool.Reset(4);
  const std::vector<TokenId> ids = {5};
  const BlockId block = pool.Allocate(1, /*rolls=*/true);
  cache.Publish(1, {1, 0}, ids, block);
  CHECK(pool.free_count() == 3);
  // A reader that does not roll: when the other goes on it gets no block back, so one is set aside.
  CHECK(pool.CostOfShare(block, false) == 1);
  pool.Share(block, false);
  CHECK(pool.free_count() == 2);
  // A third reader takes nothing more, unless it rolls too.
  CHECK(pool.CostOfShare(block, false) == 0);
  CHECK(pool.CostOfShare(block, true) == 1);
  pool.Share(block, true);
  CHECK(pool.free_count() == 1);
  CHECK(pool.used_in(1) == 1);
  pool.CheckInvariantsForTest();
  const uint64_t freed = pool.freed_count();
  pool.Release(block, true);
  CHECK(pool.free_count() == 2);
  CHECK(pool.freed_count() > freed);
  pool.StopRolling(block);
  CHECK(pool.free_count() == 3);
  pool.Release(block, false);
  pool.Release(block, false);
  CHECK(pool.free_count() == 4);
  CHECK((pool.used_in(1) == 0 && pool.cached_in(1) == 1));
  pool.CheckInvariantsForTest();
}

TEST_CASE("A prefix is found in the KV group that it was published for", "[router][scheduler]") {
  PrefixCache cache(1);
  cache.Reset(4);
  const std::vector<TokenId> ids = {5};
  cache.Publish(0, {1, 0}, ids, 2);
  cache.Publish(1, {1, 0}, ids, 3);
  CHECK(cache.Find(0, {1, 0}, ids) == 2);
  CHECK(cache.Find(1, {1, 0}, ids) == 3);
  CHECK(cache.Find(2, {1, 0}, ids) == kNoBlock);
  cache.Forget(2);
  CHECK(cache.Find(0, {1, 0}, ids) == kNoBlock);
  CHECK(cache.Find(1, {1, 0}, ids) == 3);
  cache.CheckInvariantsForTest();
}

}  // namespace
}  // namespace weft::router
