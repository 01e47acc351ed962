// A tensor as it lies in a model file, and the sizes of the number formats. Plain data; views live
// as long as the TensorSource that made them.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/check.h"
#include "common/mapped_file.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

struct TensorView {
  std::string name;
  TensorType type;
  // Outermost first: {outputs, inputs} of a matrix. Empty for a scalar.
  std::vector<uint64_t> shape;
  absl::Span<const uint8_t> data;
  // The map that `data` lies in.
  const MappedFile* file = nullptr;
};

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
