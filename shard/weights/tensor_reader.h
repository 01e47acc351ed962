// One rank's slice of one parameter, as rows of bytes or as float32 values: finds its rows in a
// tensor that may hold others', undoes the row order of GGUF files and picks columns, without
// copying a matrix. Used by loader threads, one reader per parameter; never keeps what it read.
// Only matrices that lie transposed are copied, one at a time (TransposedRows).

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "shard/model/param_table.h"
#include "shard/weights/slice_plan.h"
#include "shard/weights/tensor_view.h"

namespace weft::shard {

class TensorReader {
 public:
  // REQUIRES: `tensor` has the shape of `param`, and SliceAligned for its type; all three outlive
  // the reader.
  TensorReader(const ParamTensor& param, const DecoderSpec& spec, const TensorView& tensor,
               const TensorSlice& slice);

  // First byte of row `row` of the slice, 0 <= row < rows. REQUIRES: not transposed, and no scales
  // apart.
  const uint8_t* Row(int64_t row) const;
  // First byte of the whole row of the tensor that row `row` of the slice is a part of. REQUIRES:
  // not transposed.
  const uint8_t* FileRowOf(int64_t row) const {
    return tensor_.data.data() + FileRow(slice_.row_begin + static_cast<uint64_t>(row)) * stride_;
  }
  // Bytes of one row of the slice.
  uint64_t row_bytes() const;
  // The bytes of the file that the slice's rows lie in, columns that are not ours included.
  absl::Span<const uint8_t> span() const;
  // A vector's slice, converted. REQUIRES: F32, F16 or BF16, one dimension.
  std::vector<float> Values() const;

 private:
  friend class TransposedRows;

  // Row of the tensor that holds row `row` of the parameter, both counted over all ranks' rows. Of
  // a transposed tensor: the column.
  uint64_t FileRow(uint64_t row) const;
  // Of a transposed tensor: where an element of the parameter lies.
  const uint8_t* Element(uint64_t row, uint64_t column) const;

  const TensorView& tensor_;
  const TensorSlice slice_;
  const FileLayout& layout_;
  // Bytes of a whole row of the tensor.
  const uint64_t stride_;
  // Rows of a head and how many of them are rotary pairs of neighbours; 0 when rows are in order.
  const uint64_t head_rows_;
  const uint64_t paired_rows_;
  // The first of those in a head.
  const uint64_t paired_begin_;
};

// The same of a tensor that holds the transposed matrix: a copy of the slice, made by the
// constructor.
class TransposedRows {
 public:
  // REQUIRES: the reader's parameter lies transposed, in F32, F16 or BF16.
  explicit TransposedRows(const TensorReader& reader);
  const uint8_t* Row(int64_t row) const {
    return bytes_.data() + static_cast<uint64_t>(row) * row_bytes_;
  }

 private:
  const uint64_t row_bytes_;
  std::vector<uint8_t> bytes_;
};

// Whether the slice's columns are whole blocks of the tensor's type; else INVALID_ARGUMENT naming
// file, tensor, columns and block.
absl::Status SliceAligned(const TensorView& tensor, const TensorSlice& slice);

}  // namespace weft::shard
