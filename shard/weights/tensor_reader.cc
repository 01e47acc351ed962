#include "shard/weights/tensor_reader.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "shard/weights/row_convert.h"

namespace weft::shard {

namespace {

// Rows of a head of what holds rotary pairs of neighbours; 0 of all else.
uint64_t HeadRows(const ParamTensor& param, const DecoderSpec& spec) {
  if (param.row_order != RowOrder::kInterleavedRotary) return 0;
  const bool query = param.key.kind == ParamKind::kQuery || param.key.kind == ParamKind::kQueryBias;
  return param.shape[0] / (query ? spec.heads : spec.kv_heads);
}

}  // namespace

TensorReader::TensorReader(const ParamTensor& param, const DecoderSpec& spec,
                           const TensorView& tensor, const TensorSlice& slice)
    : tensor_(tensor),
      slice_(slice),
      layout_(param.file),
      // Not of the type: a tensor may hold the codes of its numbers alone, or their scales.
      stride_(tensor.data.size() / tensor.shape[0]),
      head_rows_(HeadRows(param, spec)),
      paired_rows_(head_rows_ > 0 ? spec.attention(param.key.layer).rope.dims : 0),
      paired_begin_(spec.latent.rank > 0 ? head_rows_ - paired_rows_ : 0) {}

uint64_t TensorReader::FileRow(uint64_t row) const {
  if (head_rows_ != 0) {
    // Wraps in front of the first pair.
    const uint64_t in_pairs = row % head_rows_ - paired_begin_;
    const uint64_t half = paired_rows_ / 2;
    if (in_pairs < paired_rows_) row += 2 * (in_pairs % half) + in_pairs / half - in_pairs;
  }
  if (layout_.run_rows == 0) return layout_.first_row + row;
  return layout_.first_row + row / layout_.run_rows * layout_.run_stride + row % layout_.run_rows;
}

const uint8_t* TensorReader::Row(int64_t row) const {
  return FileRowOf(row) + BytesOf(tensor_.type, slice_.column_begin);
}

uint64_t TensorReader::row_bytes() const { return BytesOf(tensor_.type, slice_.columns()); }

absl::Span<const uint8_t> TensorReader::span() const {
  if (layout_.block_rows > 0) {
    const uint64_t first = slice_.row_begin / layout_.block_rows;
    const uint64_t last = (slice_.row_end - 1) / layout_.block_rows;
    const uint64_t rows = (last - first) * layout_.run_stride + slice_.columns();
    return tensor_.data.subspan((layout_.first_row + first * layout_.run_stride) * stride_,
                                rows * stride_);
  }
  if (layout_.transposed) {
    return tensor_.data.subspan(slice_.column_begin * stride_, slice_.columns() * stride_);
  }
  // Rows move only inside their head, and a slice holds whole heads.
  if (layout_.run_rows == 0) {
    return tensor_.data.subspan((layout_.first_row + slice_.row_begin) * stride_,
                                slice_.rows() * stride_);
  }
  const uint64_t begin = slice_.row_begin / layout_.run_rows * layout_.run_stride;
  const uint64_t end =
      (slice_.row_end - 1) / layout_.run_rows * layout_.run_stride + layout_.run_rows;
  return tensor_.data.subspan((layout_.first_row + begin) * stride_, (end - begin) * stride_);
}

std::vector<float> TensorReader::Values() const {
  WEFT_CHECK_MSG(FormatOf(tensor_.type).elements == 1, "a vector in blocks");
  std::vector<float> out(slice_.rows());
  for (uint64_t i = 0; i < out.size(); ++i) {
    RowToFloat(tensor_.type, Row(static_cast<int64_t>(i)), 1, &out[i]);
  }
  return out;
}

const uint8_t* TensorReader::Element(uint64_t row, uint64_t column) const {
  const uint64_t bytes = FormatOf(tensor_.type).bytes;
  if (layout_.block_rows == 0) {
    return tensor_.data.data() + column * stride_ + FileRow(row) * bytes;
  }
  const uint64_t run = layout_.first_row + row / layout_.block_rows * layout_.run_stride;
  return tensor_.data.data() + (run + column) * stride_ + row % layout_.block_rows * bytes;
}

TransposedRows::TransposedRows(const TensorReader& reader)
    : row_bytes_(reader.row_bytes()), bytes_(reader.slice_.rows() * row_bytes_) {
  WEFT_CHECK(reader.layout_.transposed);
  WEFT_CHECK_EQ(FormatOf(reader.tensor_.type).elements, 1u);
  const uint64_t element = FormatOf(reader.tensor_.type).bytes;
  const TensorSlice& slice = reader.slice_;
  for (uint64_t column = 0; column < slice.columns(); ++column) {
    for (uint64_t row = 0; row < slice.rows(); ++row) {
      std::memcpy(bytes_.data() + row * row_bytes_ + column * element,
                  reader.Element(slice.row_begin + row, slice.column_begin + column), element);
    }
  }
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
