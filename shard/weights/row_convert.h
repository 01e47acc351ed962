// Rows of model files as plain numbers: every TensorType to float32, exactly, and to bfloat16,
// rounded to nearest even (a NaN stays one). Pure functions of the loader threads; loops that
// compilers turn into vector code. Formats of the quantised types: ggml's block_q8_0, block_q4_0
// and block_q4_1, as PyPI gguf dequantises them.

#pragma once

#include <cstdint>

#include "shard/weights/tensor_type.h"

namespace weft::shard {

// Converts `count` numbers at `row`, which needs no alignment. REQUIRES: whole blocks of the type.
void RowToFloat(TensorType type, const uint8_t* row, int64_t count, float* out);
void RowToBf16(TensorType type, const uint8_t* row, int64_t count, uint16_t* out);

}  // namespace weft::shard
