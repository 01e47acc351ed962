#include "shard/weights/mxfp4_rows.h"

namespace weft::shard {
namespace {

constexpr uint64_t kBlockBytes = FormatOf(TensorType::kMxfp4).bytes;
static_assert(kBlockBytes == kMxfp4CodeBytes + 1);

}  // namespace

void JoinMxfp4Block(const uint8_t* codes, uint8_t exponent, uint8_t* block) {
  block[0] = exponent;
  // Byte j of the block has the numbers j and j + 16, which lie in the bytes j / 2 and j / 2 + 8.
  constexpr uint64_t kHalf = kMxfp4CodeBytes / 2;
  for (uint64_t i = 0; i < kHalf; ++i) {
    const uint8_t low = codes[i];
    const uint8_t high = codes[i + kHalf];
    block[1 + 2 * i] = static_cast<uint8_t>((low & 0x0F) | high << 4);
    block[2 + 2 * i] = static_cast<uint8_t>(low >> 4 | (high & 0xF0));
  }
}

Mxfp4Rows::Mxfp4Rows(const TensorReader& codes, const TensorReader& exponents,
                     const TensorSlice& slice)
    : row_bytes_(BytesOf(TensorType::kMxfp4, slice.columns())), bytes_(slice.rows() * row_bytes_) {
  const uint64_t first = slice.column_begin / kMxfp4Numbers;
  const uint64_t blocks = slice.columns() / kMxfp4Numbers;
  uint8_t* out = bytes_.data();
  for (uint64_t row = 0; row < slice.rows(); ++row) {
    const auto index = static_cast<int64_t>(row);
    const uint8_t* const row_codes = codes.FileRowOf(index) + first * kMxfp4CodeBytes;
    const uint8_t* const row_exponents = exponents.FileRowOf(index) + first;
    for (uint64_t block = 0; block < blocks; ++block, out += kBlockBytes) {
      JoinMxfp4Block(row_codes + block * kMxfp4CodeBytes, row_exponents[block], out);
    }
  }
}

}  // namespace weft::shard
