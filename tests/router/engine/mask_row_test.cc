// A row's mask on the wire: the form it takes, and that shards read the same ids from it.

#include "router/engine/mask_row.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "shard/control/mask_fields.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr uint32_t kRunningMax = 8;

std::vector<uint32_t> WordsOf(uint32_t vocab, const std::vector<TokenId>& ids) {
  std::vector<uint32_t> words((vocab + 31) / 32);
  for (const TokenId id : ids) words[id / 32] |= 1u << (id % 32);
  return words;
}

// `count` ids of the vocabulary, the first and the last among them where there are two or more.
std::vector<TokenId> SomeIds(uint32_t vocab, uint32_t count, uint32_t seed) {
  std::vector<TokenId> ids(vocab);
  for (TokenId id = 0; id < vocab; ++id) ids[id] = id;
  if (vocab > 1) std::swap(ids[1], ids.back());
  if (vocab > 2) std::shuffle(ids.begin() + 2, ids.end(), std::mt19937(seed));
  ids.resize(count);
  return ids;
}

wire::MaskRowsRequest Parsed(const std::string& rows) {
  wire::MaskRowsRequest request;
  REQUIRE(request.ParseFromString(rows));
  return request;
}

TEST_CASE("Shards read from a row what it was written from", "[router][engine][masks]") {
  for (const uint32_t vocab : {1u, 2u, 8u, 31u, 32u, 33u, 100u, 257u, 1000u, 49152u}) {
    for (const uint32_t count :
         {1u, 2u, vocab / 24, vocab / 24 + 1, vocab / 2, vocab - vocab / 24, vocab - 1, vocab}) {
      if (count == 0 || count > vocab) continue;
      INFO(count << " of " << vocab);
      const std::vector<uint32_t> words = WordsOf(vocab, SomeIds(vocab, count, vocab));
      // What stands behind the vocabulary does not count.
      std::vector<uint32_t> noisy = words;
      if (vocab % 32 != 0) noisy.back() |= ~((1u << (vocab % 32)) - 1);
      for (const std::vector<uint32_t>& written : {words, noisy}) {
        std::string rows;
        REQUIRE(AppendMaskRow(5, written, vocab, &rows));
        const auto read = shard::ParseMaskRows(Parsed(rows), kRunningMax, vocab);
        REQUIRE(read.ok());
        REQUIRE(read->size() == 1);
        CHECK(read->front().first == 5);
        const std::vector<uint32_t>& mask = read->front().second.words;
        if (mask.empty()) {
          CHECK(count == vocab);
        } else {
          CHECK(mask == words);
        }
      }
    }
  }
}

TEST_CASE("A row takes the shortest form", "[router][engine][masks]") {
  constexpr uint32_t kVocab = 2400;
  const auto form = [](uint32_t count) {
    std::string rows;
    REQUIRE(AppendMaskRow(0, WordsOf(kVocab, SomeIds(kVocab, count, 1)), kVocab, &rows));
    return Parsed(rows).rows(0).allowed_case();
  };
  CHECK(form(1) == wire::RowMask::kOnly);
  CHECK(form(99) == wire::RowMask::kOnly);
  CHECK(form(100) == wire::RowMask::kBits);
  CHECK(form(kVocab - 100) == wire::RowMask::kBits);
  CHECK(form(kVocab - 99) == wire::RowMask::kAllBut);
  CHECK(form(kVocab) == wire::RowMask::kAllBut);
  // One id and all ids are lists however small the vocabulary is.
  std::string rows;
  REQUIRE(AppendMaskRow(0, WordsOf(9, {8}), 9, &rows));
  REQUIRE(AppendMaskRow(1, WordsOf(9, SomeIds(9, 9, 1)), 9, &rows));
  REQUIRE(AppendMaskRow(2, WordsOf(9, {0, 8}), 9, &rows));
  const wire::MaskRowsRequest request = Parsed(rows);
  REQUIRE(request.rows_size() == 3);
  CHECK(request.rows(0).has_only());
  CHECK(request.rows(1).has_all_but());
  CHECK(request.rows(1).all_but().ids_size() == 0);
  CHECK(request.rows(2).has_bits());
}

TEST_CASE("A row of nothing is refused and not written", "[router][engine][masks]") {
  std::string rows = "before";
  CHECK_FALSE(AppendMaskRow(0, WordsOf(40, {}), 40, &rows));
  // Only behind the vocabulary.
  CHECK_FALSE(AppendMaskRow(0, std::vector<uint32_t>{0, ~0u << 8}, 40, &rows));
  CHECK(rows == "before");
}

TEST_CASE("A free row allows all", "[router][engine][masks]") {
  std::string rows;
  AppendFreeRow(0, &rows);
  AppendFreeRow(7, &rows);
  const auto read = shard::ParseMaskRows(Parsed(rows), kRunningMax, 100);
  REQUIRE(read.ok());
  REQUIRE(read->size() == 2);
  CHECK((*read)[0].first == 0);
  CHECK((*read)[1].first == 7);
  CHECK((*read)[0].second.words.empty());
}

}  // namespace
}  // namespace weft::router
