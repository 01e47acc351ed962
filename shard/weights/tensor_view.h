// A tensor as it lies in a model file. Plain data; views live as long as the TensorSource that made
// them.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/mapped_file.h"
#include "common/tensor_type.h"

namespace weft::shard {

struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  // Outermost first: {outputs, inputs} of a matrix. Empty for a scalar.
  std::vector<uint64_t> shape;
  absl::Span<const uint8_t> data;
  // The map that `data` lies in.
  const MappedFile* file = nullptr;
  // Not empty: the file's name of a type that nobody here reads, and `type` means nothing. Such a
  // tensor may lie in a file as long as nothing asks for it.
  std::string unknown_type = {};
};

// Tensor `index` of a stack, as files hold what a layer's experts have each: a view of its own,
// without the first dimension. REQUIRES: two or three dimensions, index below the first, whole
// blocks a row.
TensorView MemberOfStack(const TensorView& stack, uint64_t index);

}  // namespace weft::shard
