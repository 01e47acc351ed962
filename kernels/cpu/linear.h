// Matrix products y = x W^T for one or many rows of x (types and sizes; the functions are in
// kernels.h). Weights are never rounded: quantised ones are multiplied as exact integers and scaled
// once per unit of inputs that share a scale (32 of them, 16 of kQ2K, kQ3K and kQ6K). For one
// instruction set the value of an output does not depend on how many rows are computed, nor on the
// tile range (invariant num.row):
//
//   unit = sum over the unit's inputs, in order, of w_q * x       (fp32 accumulator)
//   acc  = d * unit + acc; with a minimum also acc = m * sum(x of the unit) + acc
//
// where d and m are the unit's own, exact in float32. Unquantised types have d = 1 and units of 32.
// Callers split work over tiles and rows, never over inputs.

#pragma once

#include <cstdint>

#include "kernels/cpu/packing.h"

namespace weft::kernels::cpu {

// What activations are rounded to before they meet weights.
enum class ActivationType : uint8_t { kF32, kBf16 };

// The activation type to use with `type` when `wanted` is asked for: kF32 and kF16 weights have no
// bf16 path and always take float32.
ActivationType ActivationFor(WeightType type, ActivationType wanted);

// Rows prepared for Linear. Views of caller's memory.
struct Activations {
  ActivationType type = ActivationType::kF32;
  int64_t rows = 0;
  int64_t inputs = 0;
  // ActivationRowBytes each, 64-byte aligned. Contents are private to one instruction set.
  uint8_t* values = nullptr;
  // PaddedInputs / 32 floats a row: sums of the rounded values of each block.
  float* block_sums = nullptr;
};

// Bytes of one row of `values`: a multiple of 64, the same for all types and instruction sets.
int64_t ActivationRowBytes(int64_t inputs);
// Floats of one row of `block_sums`.
int64_t BlockSumCount(int64_t inputs);
// The rows [begin, end) of `all`.
Activations SliceRows(const Activations& all, int64_t begin, int64_t end);

}  // namespace weft::kernels::cpu
