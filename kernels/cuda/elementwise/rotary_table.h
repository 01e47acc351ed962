// Fills the table that RotateAndAppend reads: (cos, sin) of position * inverse frequency, times a
// factor; both products in float32 as transformers and the CPU make them, cosine and sine in double
// and rounded. Once at load: writes 8 bytes a position and pair, bound by the double units; some
// milliseconds for 131,072 positions of 64 pairs.

#pragma once

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

// Half of the widest head.
inline constexpr uint32_t kRotaryPairsMax = 128;

struct RotaryTableParams {
  float inverse_frequencies[kRotaryPairsMax] = {};
  float factor = 1.0f;
  // 1 to kRotaryPairsMax.
  uint32_t pairs = 0;
  uint32_t positions = 0;
  // [positions, pairs].
  float2* out = nullptr;
};

// cudaErrorInvalidValue outside the limits above.
cudaError_t FillRotaryTable(const RotaryTableParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
