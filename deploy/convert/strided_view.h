// Where the elements of a tensor lie in its storage: an offset and a stride for each dimension, as
// torch keeps them. A view is checked once against its storage; afterwards it holds no element
// twice and none outside, so that what is written is never more than what was read. Any thread.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft::convert {

// Dimensions that a tensor may have; the reader of safetensors takes as many.
inline constexpr size_t kDimensionsMax = 8;

struct StridedView {
  // Of one element: 1, 2, 4 or 8.
  uint64_t element_bytes = 1;
  // In elements, like the strides. Outermost dimension first.
  uint64_t offset = 0;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;

  // OK when every element lies among the first `storage_elements` and no two at one place.
  // INVALID_ARGUMENT says which of the two, or that the shape is none.
  absl::Status Check(uint64_t storage_elements) const;

  // The following need a view that has passed Check().
  uint64_t elements() const;
  uint64_t bytes() const { return elements() * element_bytes; }
  // The elements lie one behind the other in the order of the shape.
  bool contiguous() const;
  // From the first element to behind the last one, in bytes of the storage.
  absl::Span<const uint8_t> Extent(absl::Span<const uint8_t> storage) const;
};

// The elements of `view` in the order of its shape, handed to `take` in pieces of at most
// `piece_bytes` (a multiple of 8). Stops with the first error of `take`.
absl::Status VisitElements(const StridedView& view, absl::Span<const uint8_t> storage,
                           size_t piece_bytes,
                           absl::FunctionRef<absl::Status(absl::Span<const uint8_t>)> take);

}  // namespace weft::convert
