#include "shard/weights/row_convert.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "common/check.h"
#include "kernels/half.h"

namespace weft::shard {
namespace {

using kernels::HalfToFloat;
using kernels::RoundToBf16;

// Numbers of a block of the quantised types.
constexpr int64_t kBlock = 32;

template <typename T>
T LoadAs(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

void Store(float value, float* out) { *out = value; }
void Store(float value, uint16_t* out) { *out = RoundToBf16(value); }

// `Out` is float or uint16_t, which holds bfloat16.
template <typename Out>
void ConvertF32(const uint8_t* row, int64_t count, Out* out) {
  for (int64_t i = 0; i < count; ++i) Store(LoadAs<float>(row + 4 * i), out + i);
}

template <typename Out>
void ConvertF16(const uint8_t* row, int64_t count, Out* out) {
  for (int64_t i = 0; i < count; ++i) Store(HalfToFloat(LoadAs<uint16_t>(row + 2 * i)), out + i);
}

void ConvertBf16(const uint8_t* row, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(uint32_t{LoadAs<uint16_t>(row + 2 * i)} << 16);
  }
}

// Blocks of a half-precision scale and 32 signed bytes.
template <typename Out>
void ConvertQ80(const uint8_t* row, int64_t count, Out* out) {
  for (int64_t begin = 0; begin < count; begin += kBlock, row += 34) {
    const float scale = HalfToFloat(LoadAs<uint16_t>(row));
    int8_t values[kBlock];
    std::memcpy(values, row + 2, sizeof(values));
    for (int64_t i = 0; i < kBlock; ++i) {
      Store(static_cast<float>(values[i]) * scale, out + begin + i);
    }
  }
}

// Blocks of a half-precision scale, with kMinimum a half-precision minimum, and 16 bytes: number i
// in the low half of byte i, number i + 16 in its high half. Without a minimum 8 means zero. No
// product of 11 bits and 4 is rounded, so that a fused multiply and add would change nothing.
template <bool kMinimum, typename Out>
void ConvertQ4(const uint8_t* row, int64_t count, Out* out) {
  constexpr int64_t kHead = kMinimum ? 4 : 2;
  for (int64_t begin = 0; begin < count; begin += kBlock, row += kHead + kBlock / 2) {
    const float scale = HalfToFloat(LoadAs<uint16_t>(row));
    const float minimum = kMinimum ? HalfToFloat(LoadAs<uint16_t>(row + 2)) : 0.0f;
    uint8_t pairs[kBlock / 2];
    std::memcpy(pairs, row + kHead, sizeof(pairs));
    const auto value = [scale, minimum](int nibble) {
      if (kMinimum) return static_cast<float>(nibble) * scale + minimum;
      return static_cast<float>(nibble - 8) * scale;
    };
    for (int64_t i = 0; i < kBlock / 2; ++i) Store(value(pairs[i] & 15), out + begin + i);
    for (int64_t i = 0; i < kBlock / 2; ++i) {
      Store(value(pairs[i] >> 4), out + begin + kBlock / 2 + i);
    }
  }
}

template <typename Out>
void Convert(TensorType type, const uint8_t* row, int64_t count, Out* out) {
  constexpr TensorType kSame = std::is_same_v<Out, float> ? TensorType::kF32 : TensorType::kBf16;
  WEFT_CHECK(count % static_cast<int64_t>(LayoutOf(type).elements) == 0);
  if (type == kSame) {
    std::memcpy(out, row, static_cast<size_t>(count) * sizeof(Out));
    return;
  }
  switch (type) {
    case TensorType::kF32:
      return ConvertF32(row, count, out);
    case TensorType::kF16:
      return ConvertF16(row, count, out);
    case TensorType::kBf16:
      if constexpr (std::is_same_v<Out, float>) ConvertBf16(row, count, out);
      return;
    case TensorType::kQ8_0:
      return ConvertQ80(row, count, out);
    case TensorType::kQ4_0:
      return ConvertQ4<false>(row, count, out);
    case TensorType::kQ4_1:
      return ConvertQ4<true>(row, count, out);
  }
}

}  // namespace

void RowToFloat(TensorType type, const uint8_t* row, int64_t count, float* out) {
  Convert(type, row, count, out);
}

void RowToBf16(TensorType type, const uint8_t* row, int64_t count, uint16_t* out) {
  Convert(type, row, count, out);
}

}  // namespace weft::shard
