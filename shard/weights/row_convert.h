// Rows of model files as plain numbers: every TensorType to float32, exactly, and to bfloat16,
// rounded to nearest even (a NaN stays one). Pure functions of the loader threads; the arithmetic
// is that of kernels/weight_format.h.

#pragma once

#include <cstdint>

#include "common/tensor_type.h"

namespace weft::shard {

// Converts `count` numbers at `row`, which needs no alignment. REQUIRES: whole blocks of the type.
void RowToFloat(TensorType type, const uint8_t* row, int64_t count, float* out);
void RowToBf16(TensorType type, const uint8_t* row, int64_t count, uint16_t* out);

}  // namespace weft::shard
