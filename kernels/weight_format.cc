#include "kernels/weight_format.h"

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/half.h"
#include "kernels/weight_super_blocks.h"

namespace weft::kernels {
namespace {

template <typename T>
T LoadAs(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

void Store(float value, float* out) { *out = value; }
void Store(float value, uint16_t* out) { *out = RoundToBf16(value); }

// `Out` is float or uint16_t, which holds bfloat16.
template <WeightType kType, typename Out>
void UnpackPlain(const uint8_t* row, int64_t count, Out* out) {
  constexpr WeightType kSame = std::is_same_v<Out, float> ? WeightType::kF32 : WeightType::kBf16;
  if constexpr (kType == kSame) {
    std::memcpy(out, row, static_cast<size_t>(count) * sizeof(Out));
  } else if constexpr (kType == WeightType::kF32) {
    for (int64_t i = 0; i < count; ++i) Store(LoadAs<float>(row + 4 * i), out + i);
  } else if constexpr (kType == WeightType::kF16) {
    for (int64_t i = 0; i < count; ++i) Store(HalfToFloat(LoadAs<uint16_t>(row + 2 * i)), out + i);
  } else {
    static_assert(kType == WeightType::kBf16);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = std::bit_cast<float>(uint32_t{LoadAs<uint16_t>(row + 2 * i)} << 16);
    }
  }
}

// No product of d and a value is rounded (kernels/cpu/linear.h), so that a fused multiply and add
// would change nothing.
template <WeightType kType, typename Out>
void UnpackBlocks(const uint8_t* row, int64_t count, Out* out) {
  using B = Block<kType>;
  constexpr int kElements = FormatOf(kType).elements;
  constexpr int kUnit = FormatOf(kType).unit;
  for (int64_t begin = 0; begin < count; begin += kElements, row += FormatOf(kType).bytes) {
    const auto scales = B::Scales(row);
    for (int b = 0; b < kElements / kCodeGroup; ++b) {
      uint8_t codes[kCodeGroup];
      B::Codes(row, b, codes);
      Out* const at = out + begin + b * kCodeGroup;
      for (int i = 0; i < kCodeGroup; i += kUnit) {
        const float d = B::D(scales, (b * kCodeGroup + i) / kUnit);
        const float m = B::M(scales, (b * kCodeGroup + i) / kUnit);
        for (int k = i; k < i + kUnit; ++k) {
          const float scaled = static_cast<float>(B::Value(codes[k])) * d;
          Store(FormatOf(kType).has_minimum ? scaled + m : scaled, at + k);
        }
      }
    }
  }
}

template <WeightType kType, typename Out>
void UnpackAs(const uint8_t* row, int64_t count, Out* out) {
  if constexpr (IsQuantised(kType)) {
    UnpackBlocks<kType>(row, count, out);
  } else {
    UnpackPlain<kType>(row, count, out);
  }
}

template <typename Out>
using Unpack = void (*)(const uint8_t* row, int64_t count, Out* out);

template <typename Out, size_t... kIndex>
constexpr std::array<Unpack<Out>, kWeightTypes> UnpackTable(std::index_sequence<kIndex...>) {
  return {UnpackAs<static_cast<WeightType>(kIndex), Out>...};
}

template <typename Out>
constexpr auto kUnpack = UnpackTable<Out>(std::make_index_sequence<kWeightTypes>());

}  // namespace

void UnpackToFloat(WeightType type, const uint8_t* row, int64_t count, float* out) {
  kUnpack<float>[static_cast<size_t>(type)](row, count, out);
}

void UnpackToBf16(WeightType type, const uint8_t* row, int64_t count, uint16_t* out) {
  kUnpack<uint16_t>[static_cast<size_t>(type)](row, count, out);
}

}  // namespace weft::kernels
