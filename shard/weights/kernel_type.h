// The kernels' name of a tensor's format: the one place where the two halves of the table of
// formats (common/tensor_type.h, kernels/weight_format.h) meet, and are held against each other.
// Pure, any thread.

#pragma once

#include <cstddef>
#include <iterator>

#include "absl/strings/string_view.h"
#include "common/tensor_type.h"
#include "kernels/weight_format.h"

namespace weft::shard {

constexpr kernels::WeightType KernelType(TensorType type) {
  return static_cast<kernels::WeightType>(type);
}

constexpr bool FormatHalvesAgree() {
  if (std::size(kernels::kWeightFormats) != kTensorTypes) return false;
  for (const TensorFormat& format : kTensorFormats) {
    const kernels::WeightFormat& kernel = kernels::FormatOf(KernelType(format.type));
    if (absl::string_view(format.name) != kernel.name) return false;
    if (format.elements != static_cast<uint64_t>(kernel.elements)) return false;
    if (format.bytes != static_cast<uint64_t>(kernel.bytes)) return false;
  }
  return true;
}
static_assert(FormatHalvesAgree());

}  // namespace weft::shard
