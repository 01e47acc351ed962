#include "shard/control/mask_fields.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weft::shard {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

size_t WordsOf(uint32_t vocab_size) { return (size_t{vocab_size} + 31) / 32; }

// All ids of the vocabulary, and no bit beyond.
void AllowAll(uint32_t vocab_size, std::vector<uint32_t>* words) {
  words->assign(WordsOf(vocab_size), ~0u);
  if (vocab_size % 32 != 0) words->back() = (1u << (vocab_size % 32)) - 1;
}

absl::Status ParseBits(const std::string& bits, const std::string& field, uint32_t vocab_size,
                       std::vector<uint32_t>* words) {
  if (bits.size() != (size_t{vocab_size} + 7) / 8) {
    return Invalid(field, ".bits: ", bits.size(), " bytes, a vocabulary of ", vocab_size, " takes ",
                   (size_t{vocab_size} + 7) / 8);
  }
  if (vocab_size % 8 != 0 && static_cast<uint8_t>(bits.back()) >> (vocab_size % 8) != 0) {
    return Invalid(field, ".bits: a bit beyond the vocabulary's ", vocab_size, " is set");
  }
  static_assert(std::endian::native == std::endian::little);
  words->assign(WordsOf(vocab_size), 0);
  std::memcpy(words->data(), bits.data(), bits.size());
  return absl::OkStatus();
}

absl::Status ParseIds(const v1::TokenIdList& list, const std::string& field, uint32_t vocab_size,
                      bool allowed, std::vector<uint32_t>* words) {
  if (allowed) {
    words->assign(WordsOf(vocab_size), 0);
  } else {
    AllowAll(vocab_size, words);
  }
  for (int i = 0; i < list.ids_size(); ++i) {
    const TokenId id = list.ids(i);
    if (id >= vocab_size) {
      return Invalid(field, ".ids: ", id, " is not below the vocabulary's ", vocab_size);
    }
    if (i > 0 && id <= list.ids(i - 1)) return Invalid(field, ".ids: ids must ascend");
    (*words)[id / 32] ^= 1u << (id % 32);
  }
  return absl::OkStatus();
}

absl::Status ParseRow(const v1::RowMask& row, const std::string& field, uint32_t vocab_size,
                      RowMask* mask) {
  switch (row.allowed_case()) {
    case v1::RowMask::kBits:
      WEFT_RETURN_IF_ERROR(ParseBits(row.bits(), field, vocab_size, &mask->words));
      break;
    case v1::RowMask::kOnly:
      WEFT_RETURN_IF_ERROR(ParseIds(row.only(), field + ".only", vocab_size, true, &mask->words));
      break;
    case v1::RowMask::kAllBut:
      if (row.all_but().ids().empty()) return absl::OkStatus();
      WEFT_RETURN_IF_ERROR(
          ParseIds(row.all_but(), field + ".all_but", vocab_size, false, &mask->words));
      break;
    case v1::RowMask::ALLOWED_NOT_SET:
      return Invalid(field, ".allowed: none of bits, only and all_but is set");
  }
  const auto is_zero = [](uint32_t word) { return word == 0; };
  if (std::all_of(mask->words.begin(), mask->words.end(), is_zero)) {
    return Invalid(field, ".allowed: no id is");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::pair<Slot, RowMask>>> ParseMaskRows(
    const v1::MaskRowsRequest& request, uint32_t running_max, uint32_t vocab_size) {
  if (static_cast<uint32_t>(request.rows_size()) > running_max) {
    return Invalid("rows: ", request.rows_size(), ", at most ", running_max);
  }
  if (request.rows().empty()) return Invalid("rows: none");
  std::vector<std::pair<Slot, RowMask>> rows;
  rows.reserve(static_cast<size_t>(request.rows_size()));
  for (int i = 0; i < request.rows_size(); ++i) {
    const v1::RowMask& row = request.rows(i);
    const std::string field = absl::StrCat("rows[", i, "]");
    if (row.slot() >= running_max) {
      return Invalid(field, ".slot: ", row.slot(), " is not below ", running_max);
    }
    rows.emplace_back(row.slot(), RowMask{});
    WEFT_RETURN_IF_ERROR(ParseRow(row, field, vocab_size, &rows.back().second));
  }
  return rows;
}

}  // namespace weft::shard
