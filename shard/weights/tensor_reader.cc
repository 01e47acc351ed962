#include "shard/weights/tensor_reader.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::shard {
namespace {

template <typename T>
T LoadAs(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

}  // namespace

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Subnormal halves are multiples of 2^-24.
  if (magnitude < 0x0400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  // Infinity and NaN keep an exponent of all ones; others move from bias 15 to bias 127.
  const uint32_t exponent_shift = magnitude >= 0x7c00 ? 0x70000000u : 0x38000000u;
  return std::bit_cast<float>(((magnitude << 13) + exponent_shift) | sign);
}

TensorReader::TensorReader(const ParamTensor& param, const DecoderSpec& spec,
                           const TensorView& tensor, const TensorSlice& slice)
    : tensor_(tensor),
      slice_(slice),
      stride_(BytesOf(tensor.type, tensor.shape.size() == 2 ? tensor.shape[1] : 1)),
      head_rows_(param.row_order == RowOrder::kInterleavedRotary ? spec.head_dim : 0),
      paired_rows_(param.row_order == RowOrder::kInterleavedRotary ? spec.rope.dims : 0) {}

uint64_t TensorReader::FileRow(uint64_t row) const {
  if (head_rows_ == 0) return row;
  const uint64_t in_head = row % head_rows_;
  if (in_head >= paired_rows_) return row;
  const uint64_t half = paired_rows_ / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

const uint8_t* TensorReader::Row(int64_t row) const {
  return tensor_.data.data() + FileRow(slice_.row_begin + static_cast<uint64_t>(row)) * stride_ +
         BytesOf(tensor_.type, slice_.column_begin);
}

uint64_t TensorReader::row_bytes() const { return BytesOf(tensor_.type, slice_.columns()); }

absl::Span<const uint8_t> TensorReader::span() const {
  // Rows move only inside their head, and a slice holds whole heads.
  return tensor_.data.subspan(slice_.row_begin * stride_, slice_.rows() * stride_);
}

std::vector<float> TensorReader::Values() const {
  std::vector<float> out(slice_.rows());
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint8_t* const data = Row(static_cast<int64_t>(i));
    switch (tensor_.type) {
      case TensorType::kF32:
        out[i] = LoadAs<float>(data);
        break;
      case TensorType::kF16:
        out[i] = HalfToFloat(LoadAs<uint16_t>(data));
        break;
      case TensorType::kBf16:
        out[i] = std::bit_cast<float>(uint32_t{LoadAs<uint16_t>(data)} << 16);
        break;
      default:
        WEFT_CHECK_MSG(false, "a vector in blocks");
    }
  }
  return out;
}

absl::Status SliceAligned(const TensorView& tensor, const TensorSlice& slice) {
  const BlockLayout layout = LayoutOf(tensor.type);
  if (slice.column_begin % layout.elements == 0 && slice.column_end % layout.elements == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      tensor.file->path(), ": tensor ", tensor.name, ": this shard's columns ", slice.column_begin,
      " to ", slice.column_end, " cut a block of ", layout.elements, " ", layout.name,
      " numbers; one shard would work, or the model as F32, F16 or BF16"));
}

}  // namespace weft::shard
