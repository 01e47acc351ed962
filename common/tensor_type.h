// The number formats of tensors in model files: one row each, the half that every process knows.
// Readers (common/gguf, shard/weights) take names, numbers and sizes from here, and whoever names
// a format in a message. The other half of a row, how a block becomes numbers and how kernels read
// it, lies behind the same position in kernels/weight_format.h, which may include nothing of ours:
// shard/weights/kernel_type.h checks that the halves agree. Plain data, any thread; reads no bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace weft {

enum class TensorType : uint8_t {
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

struct TensorFormat {
  TensorType type;
  const char* name;
  // ggml_type in ggml.h.
  uint32_t gguf_number;
  // The dtype of a .safetensors header; null where that format has none.
  const char* safetensors_name;
  // Rows are whole blocks of `elements` numbers in `bytes` bytes.
  uint64_t elements;
  uint64_t bytes;
};

// In the order of TensorType. Quantised blocks are those of ggml-common.h: block_q8_0 and so on.
inline constexpr TensorFormat kTensorFormats[] = {
    {TensorType::kF32, "F32", 0, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, "F16", 1, 2},
    {TensorType::kBf16, "BF16", 30, "BF16", 1, 2},
    {TensorType::kQ8_0, "Q8_0", 8, nullptr, 32, 34},
    {TensorType::kQ4_0, "Q4_0", 2, nullptr, 32, 18},
    {TensorType::kQ4_1, "Q4_1", 3, nullptr, 32, 20},
    {TensorType::kQ5_0, "Q5_0", 6, nullptr, 32, 22},
    {TensorType::kQ5_1, "Q5_1", 7, nullptr, 32, 24},
    {TensorType::kQ2K, "Q2_K", 10, nullptr, 256, 84},
    {TensorType::kQ3K, "Q3_K", 11, nullptr, 256, 110},
    {TensorType::kQ4K, "Q4_K", 12, nullptr, 256, 144},
    {TensorType::kQ5K, "Q5_K", 13, nullptr, 256, 176},
    {TensorType::kQ6K, "Q6_K", 14, nullptr, 256, 210},
    {TensorType::kIq4Nl, "IQ4_NL", 20, nullptr, 32, 18},
    {TensorType::kIq4Xs, "IQ4_XS", 23, nullptr, 256, 136},
    {TensorType::kMxfp4, "MXFP4", 39, nullptr, 32, 17},
};
inline constexpr size_t kTensorTypes = std::size(kTensorFormats);

constexpr const TensorFormat& FormatOf(TensorType type) {
  return kTensorFormats[static_cast<size_t>(type)];
}

constexpr bool TensorFormatsAreInOrder() {
  for (size_t i = 0; i < kTensorTypes; ++i) {
    if (static_cast<size_t>(kTensorFormats[i].type) != i) return false;
  }
  return true;
}
static_assert(TensorFormatsAreInOrder());

// Bytes of `elements` numbers. REQUIRES: whole blocks.
constexpr uint64_t BytesOf(TensorType type, uint64_t elements) {
  const TensorFormat& format = FormatOf(type);
  return elements / format.elements * format.bytes;
}

}  // namespace weft
