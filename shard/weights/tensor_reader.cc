#include "shard/weights/tensor_reader.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "shard/weights/row_convert.h"

namespace weft::shard {

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
  WEFT_CHECK_MSG(FormatOf(tensor_.type).elements == 1, "a vector in blocks");
  std::vector<float> out(slice_.rows());
  for (uint64_t i = 0; i < out.size(); ++i) {
    RowToFloat(tensor_.type, Row(static_cast<int64_t>(i)), 1, &out[i]);
  }
  return out;
}

absl::Status SliceAligned(const TensorView& tensor, const TensorSlice& slice) {
  const TensorFormat& format = FormatOf(tensor.type);
  if (slice.column_begin % format.elements == 0 && slice.column_end % format.elements == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      tensor.file->path(), ": tensor ", tensor.name, ": this shard's columns ", slice.column_begin,
      " to ", slice.column_end, " cut a block of ", format.elements, " ", format.name, " numbers"));
}

}  // namespace weft::shard
