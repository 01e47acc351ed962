#include "deploy/convert/strided_view.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace weft::convert {
namespace {

std::string Describe(const StridedView& view) {
  return absl::StrCat("shape [", absl::StrJoin(view.shape, ", "), "] with strides [",
                      absl::StrJoin(view.strides, ", "), "] at element ", view.offset);
}

}  // namespace

absl::Status StridedView::Check(uint64_t storage_elements) const {
  const auto bad = [this](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(*this), " ", what...));
  };
  if (shape.size() != strides.size()) return bad("does not have a stride for each dimension");
  if (shape.size() > kDimensionsMax) return bad("has more than ", kDimensionsMax, " dimensions");
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) {
    // No element is read; the other dimensions must still make a number.
    uint64_t product = 1;
    for (const uint64_t dim : shape) {
      if (dim != 0 && __builtin_mul_overflow(product, dim, &product)) return bad("overflows");
    }
    return absl::OkStatus();
  }
  // Innermost first by where elements lie: each step of a dimension must lead past all that the
  // dimensions inside it span.
  std::vector<std::pair<uint64_t, uint64_t>> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1) dims.emplace_back(strides[i], shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  uint64_t last = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= last) return bad("has elements that share a place");
    uint64_t span = 0;
    if (__builtin_mul_overflow(stride, size - 1, &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return bad("overflows");
    }
  }
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, last, &end) || end >= storage_elements) {
    return bad("ends outside its storage of ", storage_elements, " elements");
  }
  return absl::OkStatus();
}

uint64_t StridedView::elements() const {
  uint64_t product = 1;
  for (const uint64_t dim : shape) product *= dim;
  return product;
}

bool StridedView::contiguous() const {
  uint64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

absl::Span<const uint8_t> StridedView::Extent(absl::Span<const uint8_t> storage) const {
  if (elements() == 0) return {};
  uint64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1) last += strides[i] * (shape[i] - 1);
  }
  return storage.subspan(offset * element_bytes, (last + 1) * element_bytes);
}

namespace {

// Copies elements that lie `stride` bytes apart.
template <size_t kBytes>
void Gather(const uint8_t* from, uint64_t stride, uint64_t count, uint8_t* to) {
  for (uint64_t i = 0; i < count; ++i) std::memcpy(to + i * kBytes, from + i * stride, kBytes);
}

void GatherAny(uint64_t element_bytes, const uint8_t* from, uint64_t stride, uint64_t count,
               uint8_t* to) {
  if (element_bytes == 1) return Gather<1>(from, stride, count, to);
  if (element_bytes == 2) return Gather<2>(from, stride, count, to);
  if (element_bytes == 4) return Gather<4>(from, stride, count, to);
  Gather<8>(from, stride, count, to);
}

// Steps through all dimensions but the innermost.
class Rows {
 public:
  explicit Rows(const StridedView& view) : view_(view), index_(view.shape.size(), 0) {}

  // In elements from the first one.
  uint64_t at() const { return at_; }
  // False behind the last row.
  bool Next() {
    for (size_t i = view_.shape.size() - 1; i-- > 0;) {
      at_ += view_.strides[i];
      if (++index_[i] < view_.shape[i]) return true;
      at_ -= view_.strides[i] * view_.shape[i];
      index_[i] = 0;
    }
    return false;
  }

 private:
  const StridedView& view_;
  std::vector<uint64_t> index_;
  uint64_t at_ = 0;
};

}  // namespace

absl::Status VisitElements(const StridedView& view, absl::Span<const uint8_t> storage,
                           size_t piece_bytes,
                           absl::FunctionRef<absl::Status(absl::Span<const uint8_t>)> take) {
  const absl::Span<const uint8_t> extent = view.Extent(storage);
  if (extent.empty()) return absl::OkStatus();
  if (view.contiguous()) {
    for (size_t at = 0; at < extent.size(); at += piece_bytes) {
      WEFT_RETURN_IF_ERROR(take(extent.subspan(at, piece_bytes)));
    }
    return absl::OkStatus();
  }
  std::vector<uint8_t> piece(piece_bytes);
  size_t filled = 0;
  const uint64_t width = view.shape.back();
  const uint64_t stride_bytes = view.strides.back() * view.element_bytes;
  Rows rows(view);
  do {
    const uint8_t* const row = extent.data() + rows.at() * view.element_bytes;
    for (uint64_t column = 0; column < width;) {
      const uint64_t room = (piece_bytes - filled) / view.element_bytes;
      const uint64_t count = std::min(width - column, room);
      GatherAny(view.element_bytes, row + column * stride_bytes, stride_bytes, count,
                piece.data() + filled);
      column += count;
      filled += count * view.element_bytes;
      if (filled < piece_bytes) continue;
      WEFT_RETURN_IF_ERROR(take(piece));
      filled = 0;
    }
  } while (rows.Next());
  if (filled == 0) return absl::OkStatus();
  return take(absl::MakeConstSpan(piece).subspan(0, filled));
}

}  // namespace weft::convert
