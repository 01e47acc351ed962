// MaskRows from the wire: what is refused by which name, and what each form of a mask means.

#include "shard/control/mask_fields.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

namespace weft::shard {
namespace {

constexpr uint32_t kRunningMax = 4;

// The ids that a mask allows.
std::vector<TokenId> IdsOf(const RowMask& mask, uint32_t vocab_size) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < vocab_size; ++id) {
    if (mask.words.empty() || ((mask.words.at(id / 32) >> (id % 32)) & 1u) != 0) ids.push_back(id);
  }
  return ids;
}

v1::RowMask* AddRow(v1::MaskRowsRequest* request, uint32_t slot) {
  v1::RowMask* row = request->add_rows();
  row->set_slot(slot);
  return row;
}

std::string BitsOf(const std::vector<TokenId>& ids, uint32_t vocab_size) {
  std::string bits((vocab_size + 7) / 8, '\0');
  for (const TokenId id : ids) {
    bits[id / 8] = static_cast<char>(static_cast<unsigned char>(bits[id / 8]) | (1u << (id % 8)));
  }
  return bits;
}

TEST_CASE("Each form of a mask allows what it says, for vocabularies of any size",
          "[shard][masks]") {
  for (const uint32_t vocab : {1u, 7u, 8u, 9u, 31u, 32u, 33u, 63u, 64u, 65u, 100u, 1000u}) {
    INFO("a vocabulary of " << vocab);
    const std::vector<TokenId> some =
        vocab == 1 ? std::vector<TokenId>{0} : std::vector<TokenId>{0, vocab - 1};
    v1::MaskRowsRequest request;
    v1::RowMask* row = AddRow(&request, 0);
    row->mutable_only()->mutable_ids()->Add(some.begin(), some.end());
    AddRow(&request, 3)->set_bits(BitsOf(some, vocab));
    AddRow(&request, 1)->mutable_all_but();
    if (vocab > 2) {
      row = AddRow(&request, 2);
      row->mutable_all_but()->mutable_ids()->Add(some.begin(), some.end());
    }
    const auto rows = ParseMaskRows(request, kRunningMax, vocab);
    REQUIRE(rows.ok());
    REQUIRE(rows->size() == (vocab > 2 ? 4 : 3));
    CHECK((*rows)[0].first == 0);
    CHECK(IdsOf((*rows)[0].second, vocab) == some);
    CHECK((*rows)[1].first == 3);
    CHECK(IdsOf((*rows)[1].second, vocab) == some);
    CHECK((*rows)[2].first == 1);
    CHECK(IdsOf((*rows)[2].second, vocab).size() == vocab);
    if (vocab > 2) {
      const std::vector<TokenId> rest = IdsOf((*rows)[3].second, vocab);
      REQUIRE(rest.size() == vocab - 2);
      CHECK(rest.front() == 1);
      CHECK(rest.back() == vocab - 2);
    }
    // Kernels read whole words: nothing beyond the vocabulary is allowed.
    for (const auto& [slot, mask] : *rows) {
      if (mask.words.empty()) continue;
      REQUIRE(mask.words.size() == (vocab + 31) / 32);
      if (vocab % 32 != 0) CHECK((mask.words.back() >> (vocab % 32)) == 0);
    }
  }
}

TEST_CASE("What is wrong with a mask is refused by the name of its field", "[shard][masks]") {
  struct Case {
    const char* what;
    uint32_t vocab;
    std::function<void(v1::MaskRowsRequest*)> fill;
    const char* field;
  };
  const auto only = [](std::vector<uint32_t> ids) {
    return [ids](v1::MaskRowsRequest* request) {
      AddRow(request, 1)->mutable_only()->mutable_ids()->Add(ids.begin(), ids.end());
    };
  };
  const auto all_but = [](std::vector<uint32_t> ids) {
    return [ids](v1::MaskRowsRequest* request) {
      AddRow(request, 1)->mutable_all_but()->mutable_ids()->Add(ids.begin(), ids.end());
    };
  };
  const auto bits = [](std::string bytes) {
    return [bytes](v1::MaskRowsRequest* request) { AddRow(request, 1)->set_bits(bytes); };
  };
  const Case kCases[] = {
      {"no row", 10, [](v1::MaskRowsRequest*) {}, "rows: none"},
      {"more rows than slots", 10,
       [](v1::MaskRowsRequest* request) {
         for (uint32_t i = 0; i <= kRunningMax; ++i) AddRow(request, 0)->mutable_all_but();
       },
       "rows: 5, at most 4"},
      {"a slot too high", 10,
       [](v1::MaskRowsRequest* request) { AddRow(request, kRunningMax)->mutable_all_but(); },
       "rows[0].slot"},
      {"nothing is said", 10, [](v1::MaskRowsRequest* request) { AddRow(request, 1); },
       "rows[0].allowed"},
      {"the second row", 10,
       [](v1::MaskRowsRequest* request) {
         AddRow(request, 1)->mutable_all_but();
         AddRow(request, 2);
       },
       "rows[1].allowed"},
      {"an id of no token", 10, only({3, 10}), "rows[0].only.ids: 10"},
      {"an id far beyond", 10, only({~0u}), "rows[0].only.ids"},
      {"ids that descend", 10, only({4, 3}), "rows[0].only.ids: ids must ascend"},
      {"an id twice", 10, only({4, 4}), "rows[0].only.ids: ids must ascend"},
      {"no id", 10, only({}), "rows[0].allowed: no id is"},
      {"an id of no token", 10, all_but({10}), "rows[0].all_but.ids: 10"},
      {"an id twice", 10, all_but({0, 0}), "rows[0].all_but.ids: ids must ascend"},
      {"all but all", 3, all_but({0, 1, 2}), "rows[0].allowed: no id is"},
      {"all but all of whole words", 32,
       [](v1::MaskRowsRequest* request) {
         v1::RowMask* row = AddRow(request, 1);
         for (uint32_t id = 0; id < 32; ++id) row->mutable_all_but()->add_ids(id);
       },
       "rows[0].allowed: no id is"},
      {"too few bytes", 17, bits("ab"), "rows[0].bits: 2 bytes"},
      {"too many bytes", 16, bits("abc"), "rows[0].bits: 3 bytes"},
      {"no bytes", 16, bits(""), "rows[0].bits: 0 bytes"},
      {"no bit", 16, bits(std::string(2, '\0')), "rows[0].allowed: no id is"},
      {"a bit beyond", 17, bits(std::string("\0\0\2", 3)), "rows[0].bits: a bit beyond"},
      {"the last bit beyond", 15, bits("a\x80"), "rows[0].bits: a bit beyond"},
  };
  for (const Case& one : kCases) {
    INFO(one.what << ": " << one.field);
    v1::MaskRowsRequest request;
    one.fill(&request);
    const absl::Status status = ParseMaskRows(request, kRunningMax, one.vocab).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::StartsWith(one.field));
  }
}

}  // namespace
}  // namespace weft::shard
