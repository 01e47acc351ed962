// The number formats of weights as the CPU's kernels lay them out: the third column of the table of
// formats (kernels/weight_format.h has the second). Sizes of packed memory and the choice of
// kernels follow from it; the layout itself is stated in packing.h. Constants, any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/weight_format.h"

namespace weft::kernels::cpu {

// What lies behind the codes of 16 rows of a block.
enum class ScaleLayout : uint8_t {
  kNone,
  kHalf,      // 16 f16 d
  kHalfPair,  // 16 f16 d, 16 f16 m
};

// Codes lie in planes of `low_bits` and, where they have more, `high_bits` bits; numbers that are
// no codes in one plane of themselves.
struct PackedFormat {
  WeightType type;
  int low_bits;
  int high_bits;
  ScaleLayout scales;
  // Whether kernels multiply them with bf16 activations; with float32 ones they always do.
  bool takes_bf16;
};

// In the order of WeightType.
inline constexpr PackedFormat kPackedFormats[] = {
    {WeightType::kF32, 32, 0, ScaleLayout::kNone, false},
    {WeightType::kF16, 16, 0, ScaleLayout::kNone, false},
    {WeightType::kBf16, 16, 0, ScaleLayout::kNone, true},
    {WeightType::kQ8_0, 8, 0, ScaleLayout::kHalf, true},
    {WeightType::kQ4_0, 4, 0, ScaleLayout::kHalf, true},
    {WeightType::kQ4_1, 4, 0, ScaleLayout::kHalfPair, true},
};

constexpr const PackedFormat& PackedFormatOf(WeightType type) {
  return kPackedFormats[static_cast<size_t>(type)];
}

constexpr bool PackedFormatsAreInOrder() {
  for (size_t i = 0; i < kWeightTypes; ++i) {
    if (static_cast<size_t>(kPackedFormats[i].type) != i) return false;
  }
  return std::size(kPackedFormats) == kWeightTypes;
}
static_assert(PackedFormatsAreInOrder());

// Inputs of one packed block: of formats without blocks, as many as kernels take at a time.
constexpr int64_t PackedBlockInputs(WeightType type) {
  return FormatOf(type).elements < 32 ? 32 : FormatOf(type).elements;
}

// Bytes of the weights, without scales, of 16 rows of 32 inputs.
constexpr int64_t PackedGroupBytes(WeightType type) {
  return 64 * (PackedFormatOf(type).low_bits + PackedFormatOf(type).high_bits);
}

constexpr int64_t PackedScaleBytes(ScaleLayout layout) {
  switch (layout) {
    case ScaleLayout::kNone:
      return 0;
    case ScaleLayout::kHalf:
      return 32;
    case ScaleLayout::kHalfPair:
      return 64;
  }
  return 0;
}

// Bytes of 16 rows of one packed block.
constexpr int64_t PackedBlockBytes(WeightType type) {
  return PackedBlockInputs(type) / 32 * PackedGroupBytes(type) +
         PackedScaleBytes(PackedFormatOf(type).scales);
}

}  // namespace weft::kernels::cpu
