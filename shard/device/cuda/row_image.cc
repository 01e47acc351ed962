#include "shard/device/cuda/row_image.h"

#include <algorithm>
#include <cstring>

#include "shard/weights/row_convert.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;

TensorType SameType(DType type) {
  return type == DType::kFloat32 ? TensorType::kF32 : TensorType::kBf16;
}

}  // namespace

RowImage::RowImage(const MatrixSource& source, const kernels::cuda::PaddedGrid& grid, DType type)
    : source_(source),
      grid_(grid),
      type_(type),
      element_bytes_(kernels::cuda::BytesOf(type)),
      row_bytes_(grid.stride * element_bytes_),
      plain_(source.type == SameType(type) && grid.columns == grid.stride),
      scratch_(grid.column_group < grid.columns ? grid.columns * element_bytes_ : 0) {}

void RowImage::Write(uint64_t begin, uint64_t end, uint8_t* out) {
  const uint64_t group = grid_.row_group;
  for (uint64_t at = begin; at < end;) {
    const uint64_t in_group = at % grid_.row_group_stride;
    const uint64_t row = at / grid_.row_group_stride * group + in_group;
    uint64_t count = 1;
    if (in_group >= group || row >= grid_.rows) {
      std::memset(out, 0, row_bytes_);
    } else if (plain_) {
      // As many rows as lie behind each other in the file, by one copy.
      const uint64_t rows_max = std::min({group - in_group, end - at, uint64_t{grid_.rows} - row});
      const uint8_t* const first = source_.row(static_cast<int64_t>(row));
      while (count < rows_max &&
             source_.row(static_cast<int64_t>(row + count)) == first + count * row_bytes_) {
        ++count;
      }
      std::memcpy(out, first, count * row_bytes_);
    } else {
      WriteRow(source_.row(static_cast<int64_t>(row)), out);
    }
    at += count;
    out += count * row_bytes_;
  }
}

void RowImage::WriteRow(const uint8_t* row, uint8_t* out) {
  if (scratch_.empty()) {
    const uint64_t used = grid_.columns * element_bytes_;
    Convert(row, out);
    std::memset(out + used, 0, row_bytes_ - used);
    return;
  }
  Convert(row, scratch_.data());
  std::memset(out, 0, row_bytes_);
  const uint64_t group_bytes = grid_.column_group * element_bytes_;
  for (uint32_t group = 0; group < grid_.columns / grid_.column_group; ++group) {
    std::memcpy(out + group * grid_.column_group_stride * element_bytes_,
                scratch_.data() + group * group_bytes, group_bytes);
  }
}

void RowImage::Convert(const uint8_t* row, uint8_t* out) const {
  if (type_ == DType::kFloat32) {
    RowToFloat(source_.type, row, source_.inputs, reinterpret_cast<float*>(out));
  } else {
    RowToBf16(source_.type, row, source_.inputs, reinterpret_cast<uint16_t*>(out));
  }
}

}  // namespace weft::shard
