// Matrices of MXFP4 as safetensors of gpt-oss hold them, with the exponents of blocks in a tensor
// of their own: put together as the blocks that GGUF files hold and kernels read. Used by loader
// threads, one matrix at a time; takes memory for one slice and keeps nothing of the files.

#pragma once

#include <cstdint>
#include <vector>

#include "shard/weights/tensor_reader.h"

namespace weft::shard {

// Numbers that share an exponent, and the bytes of their codes.
inline constexpr uint64_t kMxfp4Numbers = FormatOf(TensorType::kMxfp4).elements;
inline constexpr uint64_t kMxfp4CodeBytes = kMxfp4Numbers / 2;

// The block of kernels/weight_blocks.h. Byte j of codes[kMxfp4CodeBytes] has number 2j in its lower
// half and 2j + 1 in its upper one; a block has 16 numbers in the lower halves and 16 in the upper.
void JoinMxfp4Block(const uint8_t* codes, uint8_t exponent, uint8_t* block);

// A copy of the slice in blocks, made by the constructor.
class Mxfp4Rows {
 public:
  // REQUIRES: both are of the same parameter and of `slice`, whose columns are whole blocks; rows
  // have kMxfp4CodeBytes a block in the tensor of `codes` and a byte a block in that of
  // `exponents`.
  Mxfp4Rows(const TensorReader& codes, const TensorReader& exponents, const TensorSlice& slice);
  const uint8_t* Row(int64_t row) const {
    return bytes_.data() + static_cast<uint64_t>(row) * row_bytes_;
  }

 private:
  const uint64_t row_bytes_;
  std::vector<uint8_t> bytes_;
};

}  // namespace weft::shard
