#include "shard/device/cpu/weight_convert.h"

#include <cmath>
#include <cstring>

#include "common/check.h"

namespace weft::shard {
namespace {

uint16_t RoundToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  bits += 0x7fffu + ((bits >> 16) & 1);
  return static_cast<uint16_t>(bits >> 16);
}

float HalfToFloat(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  float magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

void NarrowToBf16(TensorType type, const uint8_t* row, int64_t count, uint16_t* out) {
  WEFT_CHECK(type == TensorType::kF32 || type == TensorType::kF16);
  for (int64_t i = 0; i < count; ++i) {
    if (type == TensorType::kF32) {
      float value;
      std::memcpy(&value, row + i * 4, sizeof(value));
      out[i] = RoundToBf16(value);
    } else {
      uint16_t value;
      std::memcpy(&value, row + i * 2, sizeof(value));
      out[i] = RoundToBf16(HalfToFloat(value));
    }
  }
}

}  // namespace weft::shard
