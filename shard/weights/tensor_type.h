// The number formats of model files and the bytes that they take. Plain data, any thread; how a
// format is turned into numbers is row_convert.h's.

#pragma once

#include <cstdint>

#include "common/check.h"

namespace weft::shard {

// Number format of a parameter in the model file; quantised ones in blocks of 32 inputs.
enum class TensorType : uint8_t { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1 };

// Layout of a number format: rows are whole blocks of `elements` numbers in `bytes` bytes.
struct BlockLayout {
  const char* name;
  uint64_t elements;
  uint64_t bytes;
};

inline BlockLayout LayoutOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {"F32", 1, 4};
    case TensorType::kF16:
      return {"F16", 1, 2};
    case TensorType::kBf16:
      return {"BF16", 1, 2};
    case TensorType::kQ8_0:
      return {"Q8_0", 32, 34};
    case TensorType::kQ4_0:
      return {"Q4_0", 32, 18};
    case TensorType::kQ4_1:
      return {"Q4_1", 32, 20};
  }
  WEFT_CHECK_MSG(false, "unknown TensorType");
}

// Bytes of `elements` numbers. REQUIRES: whole blocks.
inline uint64_t BytesOf(TensorType type, uint64_t elements) {
  const BlockLayout layout = LayoutOf(type);
  return elements / layout.elements * layout.bytes;
}

}  // namespace weft::shard
