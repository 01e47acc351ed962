// The number formats of weights as kernels know them: one row each, by blocks as they lie in model
// files. This is the half of the table of formats that does arithmetic; names in files stand in
// common/tensor_type.h, at the same position. How the CPU's kernels lay a format out and multiply
// it is the third column, kernels/cpu/packed_format.h. Pure functions on raw pointers, any thread,
// no allocation.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace weft::kernels {

enum class WeightType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
};

// A row of weights is whole blocks of `elements` numbers in `bytes` bytes. Of quantised ones `unit`
// consecutive numbers share a scale and, with has_minimum, a minimum.
struct WeightFormat {
  WeightType type;
  const char* name;
  int elements;
  int bytes;
  int unit = 1;
  bool has_minimum = false;
};

// In the order of WeightType.
inline constexpr WeightFormat kWeightFormats[] = {
    {WeightType::kF32, "F32", 1, 4},
    {WeightType::kF16, "F16", 1, 2},
    {WeightType::kBf16, "BF16", 1, 2},
    {WeightType::kQ8_0, "Q8_0", 32, 34, 32},
    {WeightType::kQ4_0, "Q4_0", 32, 18, 32},
    {WeightType::kQ4_1, "Q4_1", 32, 20, 32, true},
    {WeightType::kQ5_0, "Q5_0", 32, 22, 32},
    {WeightType::kQ5_1, "Q5_1", 32, 24, 32, true},
    {WeightType::kQ2K, "Q2_K", 256, 84, 16, true},
    {WeightType::kQ3K, "Q3_K", 256, 110, 16},
    {WeightType::kQ4K, "Q4_K", 256, 144, 32, true},
    {WeightType::kQ5K, "Q5_K", 256, 176, 32, true},
    {WeightType::kQ6K, "Q6_K", 256, 210, 16},
    {WeightType::kIq4Nl, "IQ4_NL", 32, 18, 32},
    {WeightType::kIq4Xs, "IQ4_XS", 256, 136, 32},
    {WeightType::kMxfp4, "MXFP4", 32, 17, 32},
};
inline constexpr size_t kWeightTypes = std::size(kWeightFormats);

constexpr const WeightFormat& FormatOf(WeightType type) {
  return kWeightFormats[static_cast<size_t>(type)];
}

constexpr bool WeightFormatsAreInOrder() {
  for (size_t i = 0; i < kWeightTypes; ++i) {
    if (static_cast<size_t>(kWeightFormats[i].type) != i) return false;
  }
  return true;
}
static_assert(WeightFormatsAreInOrder());

constexpr bool IsQuantised(WeightType type) { return FormatOf(type).elements > 1; }

// Unpacks `count` numbers at `row`, which needs no alignment: to float32, exactly as PyPI gguf does
// (each operation rounded to float32), and to bfloat16, that rounded to nearest even (a NaN stays
// one). REQUIRES: whole blocks.
void UnpackToFloat(WeightType type, const uint8_t* row, int64_t count, float* out);
void UnpackToBf16(WeightType type, const uint8_t* row, int64_t count, uint16_t* out);

}  // namespace weft::kernels
