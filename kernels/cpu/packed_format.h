// The number formats of weights as the CPU's kernels lay them out: the third column of the table of
// formats (kernels/weight_format.h has the second). Sizes of packed memory and the choice of
// kernels follow from it; the layout itself is stated in packing.h. Constants, any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/weight_format.h"

namespace weft::kernels::cpu {

// What lies behind the codes of 16 rows of a block; the order of the bytes stands in packing.h. A
// format with several units has a small integer for each of them, times the block's f16 d.
enum class ScaleLayout : uint8_t {
  kNone,
  kHalf,      // f16 d
  kHalfPair,  // f16 d, f16 m
  kFourPair,  // 16 units of scale and minimum of 4 bits, f16 d and m
  kSixPair,   // 8 units of scale and minimum of 6 bits, f16 d and m
  kSix8,      // 8 units of 6 bits, 32 means zero; f16 d
  kSix16,     // 16 units of 6 bits, 32 means zero; f16 d
  kEight,     // 16 units of int8; f16 d
  kExponent,  // d as an 8-bit exponent
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
  // Whether many rows take them unpacked (impl/panel.inc.h).
  bool panels = false;
};

// In the order of WeightType.
inline constexpr PackedFormat kPackedFormats[] = {
    {WeightType::kF32, 32, 0, ScaleLayout::kNone, false},
    {WeightType::kF16, 16, 0, ScaleLayout::kNone, false},
    {WeightType::kBf16, 16, 0, ScaleLayout::kNone, true},
    {WeightType::kQ8_0, 8, 0, ScaleLayout::kHalf, true},
    {WeightType::kQ4_0, 4, 0, ScaleLayout::kHalf, true},
    {WeightType::kQ4_1, 4, 0, ScaleLayout::kHalfPair, true},
    {WeightType::kQ5_0, 4, 1, ScaleLayout::kHalf, true, true},
    {WeightType::kQ5_1, 4, 1, ScaleLayout::kHalfPair, true, true},
    {WeightType::kQ2K, 2, 0, ScaleLayout::kFourPair, true, true},
    {WeightType::kQ3K, 2, 1, ScaleLayout::kSix16, true, true},
    {WeightType::kQ4K, 4, 0, ScaleLayout::kSixPair, true, true},
    {WeightType::kQ5K, 4, 1, ScaleLayout::kSixPair, true, true},
    {WeightType::kQ6K, 4, 2, ScaleLayout::kEight, true, true},
    {WeightType::kIq4Nl, 4, 0, ScaleLayout::kHalf, true, true},
    {WeightType::kIq4Xs, 4, 0, ScaleLayout::kSix8, true, true},
    {WeightType::kMxfp4, 4, 0, ScaleLayout::kExponent, true, true},
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
    case ScaleLayout::kFourPair:
      return 16 * 16 + 64;
    case ScaleLayout::kSixPair:
      return 8 * 16 + 64 + 64;
    case ScaleLayout::kSix8:
      return 4 * 16 + 32 + 32;
    case ScaleLayout::kSix16:
      return 8 * 16 + 64 + 32;
    case ScaleLayout::kEight:
      return 16 * 16 + 32;
    case ScaleLayout::kExponent:
      return 16;
  }
  return 0;
}

// Bytes of 16 rows of one packed block.
constexpr int64_t PackedBlockBytes(WeightType type) {
  return PackedBlockInputs(type) / 32 * PackedGroupBytes(type) +
         PackedScaleBytes(PackedFormatOf(type).scales);
}

// Packing moves bits: 16 rows of a block take what they take in the file.
constexpr bool PackedBlocksKeepTheirSize() {
  for (const WeightFormat& format : kWeightFormats) {
    if (format.elements > 1 && PackedBlockBytes(format.type) != 16 * format.bytes) return false;
  }
  return true;
}
static_assert(PackedBlocksKeepTheirSize());

}  // namespace weft::kernels::cpu
