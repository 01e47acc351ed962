// Makes host images of padded device memory: rows of a model file, converted, with zeros where the
// padding is, so that one plain copy brings any run of them up. One writer per parameter and
// thread; plain CPU code.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/elementwise/random_fill.h"
#include "shard/weights/weight_sink.h"

namespace weft::shard {

class RowImage {
 public:
  // REQUIRES: `source` has the rows and columns of `grid`; both outlive the writer.
  RowImage(const MatrixSource& source, const kernels::cuda::PaddedGrid& grid,
           kernels::cuda::DType type);

  // Bytes of a row in memory.
  uint64_t row_bytes() const { return row_bytes_; }
  // Writes memory rows [begin, end) behind each other.
  void Write(uint64_t begin, uint64_t end, uint8_t* out);

 private:
  void WriteRow(const uint8_t* row, uint8_t* out);
  // Converted, without padding.
  void Convert(const uint8_t* row, uint8_t* out) const;

  const MatrixSource& source_;
  const kernels::cuda::PaddedGrid grid_;
  const kernels::cuda::DType type_;
  const uint64_t element_bytes_;
  const uint64_t row_bytes_;
  // Whether the file's bytes are already those of the image, so that rows need no conversion.
  const bool plain_;
  // One converted row, where its columns have to be put apart.
  std::vector<uint8_t> scratch_;
};

}  // namespace weft::shard
