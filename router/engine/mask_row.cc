#include "router/engine/mask_row.h"

#include <bit>
#include <cstring>

#include "weft/shard/v1/shard.pb.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

// An id takes up to three bytes on the wire: with fewer ids than this share of the vocabulary a
// list is shorter than a bit for each.
constexpr uint32_t kListShare = 24;

uint32_t CountIds(absl::Span<const uint32_t> words, uint32_t vocab_size) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < vocab_size / 32; ++i) {
    count += static_cast<uint32_t>(std::popcount(words[i]));
  }
  const uint32_t rest = vocab_size % 32;
  if (rest > 0) {
    count += static_cast<uint32_t>(std::popcount(words[vocab_size / 32] & ((1u << rest) - 1)));
  }
  return count;
}

// Those whose bit is `set`.
void ListIds(absl::Span<const uint32_t> words, uint32_t vocab_size, bool set,
             wire::TokenIdList* list) {
  for (uint32_t i = 0; i * 32 < vocab_size; ++i) {
    for (uint32_t word = set ? words[i] : ~words[i]; word != 0; word &= word - 1) {
      const uint32_t id = i * 32 + static_cast<uint32_t>(std::countr_zero(word));
      if (id >= vocab_size) return;
      list->add_ids(id);
    }
  }
}

void PackBits(absl::Span<const uint32_t> words, uint32_t vocab_size, std::string* bits) {
  static_assert(std::endian::native == std::endian::little);
  bits->resize((size_t{vocab_size} + 7) / 8);
  std::memcpy(bits->data(), words.data(), bits->size());
  if (vocab_size % 8 != 0) {
    bits->back() =
        static_cast<char>(static_cast<uint8_t>(bits->back()) & ((1u << (vocab_size % 8)) - 1));
  }
}

}  // namespace

bool AppendMaskRow(Slot slot, absl::Span<const uint32_t> words, uint32_t vocab_size,
                   std::string* rows) {
  const uint32_t count = CountIds(words, vocab_size);
  if (count == 0) return false;
  wire::MaskRowsRequest request;
  wire::RowMask* const row = request.add_rows();
  row->set_slot(slot);
  if (count < vocab_size / kListShare || count == 1) {
    ListIds(words, vocab_size, true, row->mutable_only());
  } else if (vocab_size - count < vocab_size / kListShare || count == vocab_size) {
    ListIds(words, vocab_size, false, row->mutable_all_but());
  } else {
    PackBits(words, vocab_size, row->mutable_bits());
  }
  request.AppendToString(rows);
  return true;
}

void AppendFreeRow(Slot slot, std::string* rows) {
  wire::MaskRowsRequest request;
  wire::RowMask* const row = request.add_rows();
  row->set_slot(slot);
  row->mutable_all_but();
  request.AppendToString(rows);
}

}  // namespace weft::router
