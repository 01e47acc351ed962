// Rounding of F32 and F16 rows to bfloat16 at load (--dtype bfloat16). Pure functions, loader
// threads.

#pragma once

#include <cstdint>

#include "shard/weights/weight_sink.h"

namespace weft::shard {

// Rounds `count` numbers at `row`, of type kF32 or kF16, to nearest even. `row` needs no alignment.
void NarrowToBf16(TensorType type, const uint8_t* row, int64_t count, uint16_t* out);

}  // namespace weft::shard
