// The CPU kernels: a table of functions for each instruction set. Called by the shard's device and
// compute threads (shard/device/cpu). Kernels work on raw pointers, allocate nothing, start no
// threads and touch nothing but their arguments; every one takes a range of rows or tiles, so that
// the caller's threads can share the work. Within one table the numbers of a row are the same for
// any split (invariant num.row). Matrices are row-major float32; strides count floats; pointers to
// float need no alignment unless said.

#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/packing.h"
#include "kernels/cpu/sampling.h"

namespace weft::kernels::cpu {

//   kSilu:     x / (1 + exp(-x))
//   kGeluTanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
//   kGeluErf:  x / 2 * (1 + erf(x / sqrt(2))), within 2e-7 * |x|
//   kRelu:     max(x, 0)
enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu };

struct Kernels {
  Isa isa;

  // --- linear.h ---

  // Fills rows [row_begin, row_end) of `out` from x (row r at x + r * x_stride): rounds to out.type
  // (to nearest even), pads with zeros, sums each block in a fixed tree.
  void (*prepare_activations)(const float* x, int64_t x_stride, int64_t row_begin, int64_t row_end,
                              const Activations& out);

  // y[r][16 * tile + n] for all rows of x and tiles [tile_begin, tile_end); outputs beyond
  // matrix.outputs are not written. x must have been prepared by this table, with
  // x.inputs == matrix.inputs and x.type == ActivationFor(matrix.type, x.type).
  void (*linear)(const PackedMatrix& matrix, const Activations& x, int64_t tile_begin,
                 int64_t tile_end, float* y, int64_t y_stride);

  // --- rows ---

  // y = x / sqrt(mean(x^2) + epsilon) * weight, `count` elements a row. y may be x.
  void (*rms_norm)(const float* x, int64_t x_stride, const float* weight, float epsilon,
                   int64_t count, int64_t rows, float* y, int64_t y_stride);

  // y = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias; bias may be null. y may be x.
  void (*layer_norm)(const float* x, int64_t x_stride, const float* weight, const float* bias,
                     float epsilon, int64_t count, int64_t rows, float* y, int64_t y_stride);

  // Rotates `heads` consecutive heads of one row in place, half-split form: for i < dims / 2
  //   (x[i], x[i + dims/2]) -> (x[i] c - x[i + dims/2] s, x[i + dims/2] c + x[i] s)
  // with c = cosines[i], s = sines[i]; elements from dims on stay.
  void (*rotary)(float* x, int64_t heads, int64_t head_dim, int64_t dims, const float* cosines,
                 const float* sines);

  // out = gate / (1 + exp(-gate)) * up, `count` elements. out may be gate or up.
  void (*silu_multiply)(const float* gate, const float* up, int64_t count, float* out);

  // out = g / (1 + exp(-1.702 g)) * (u + 1), `count` elements, where g is `gate` up to `limit` and
  // u is `up` cut to [-limit, limit]. NaN stays NaN. out may be gate or up.
  void (*clamped_swiglu)(const float* gate, const float* up, float limit, int64_t count,
                         float* out);

  // out = the function of x, `count` elements. NaN stays NaN. out may be x.
  void (*activate)(Activation function, const float* x, int64_t count, float* out);

  // out = a * b, `count` elements. out may be a or b.
  void (*multiply)(const float* a, const float* b, int64_t count, float* out);

  // out = x cut to [-limit, limit], `count` elements. NaN stays NaN. out may be x.
  void (*clip)(const float* x, float limit, int64_t count, float* out);

  // out = cap * tanh(x / cap), `count` elements. NaN stays NaN. out may be x.
  void (*soft_cap)(const float* x, float cap, int64_t count, float* out);

  // out = a + b, `count` elements; residuals and biases. out may be a or b.
  void (*add)(const float* a, const float* b, int64_t count, float* out);

  // Round to nearest even; NaN stays NaN.
  void (*to_bf16)(const float* x, int64_t count, uint16_t* out);
  void (*from_bf16)(const uint16_t* x, int64_t count, float* out);

  // out = exp(x), `count` elements, within 2 ulp; results below 2^-126 are 0. The same bits on
  // every instruction set.
  void (*exp)(const float* x, int64_t count, float* out);
  // out = PolyLog(x) of kernels/philox.h.
  void (*log)(const float* x, int64_t count, float* out);

  // --- attention.h ---

  // Stores rows k and v (all KV heads, [kv_heads * head_dim] a row; v null of latent attention) of
  // positions start .. start + rows - 1 into their blocks, rounded to the KV type. Distinct rows
  // may be stored by distinct threads at once. block_ids cover position start + rows - 1.
  // Gives how many numbers were too large for the KV type and are stored as its largest (kF16
  // alone; NaN is no such number).
  int64_t (*kv_append)(const KvBlocks& kv, int64_t start, int64_t rows, const float* k,
                       int64_t k_stride, const float* v, int64_t v_stride);

  // Causal attention of work.rows rows over positions 0 .. start + row. All of them must have been
  // stored by kv_append before. `scratch`: AttentionScratchBytes(head_dim), of latent attention
  // LatentScratchBytes(latent_dim).
  void (*attention)(const AttentionWork& work, void* scratch);

  // --- sampling.h; ids are first_id + index, count >= 1; NaN never wins ---

  TokenScore (*arg_max)(const float* logits, int64_t count, uint32_t first_id);

  // argmax of logits / temperature + noise(seed, position, id) (kernels/philox.h), ties to the
  // lowest id; the winner's sum is its score. Tokens at -infinity never win beside a finite one.
  TokenScore (*gumbel_arg_max)(const float* logits, int64_t count, uint32_t first_id,
                               float temperature, uint64_t seed, uint64_t position);

  // The noise of `count` tokens from first_id on.
  void (*gumbel_noise)(uint32_t first_id, int64_t count, uint64_t seed, uint64_t position,
                       float* out);

  // Whether no logit is NaN or +infinity.
  bool (*all_below_infinity)(const float* logits, int64_t count);

  // Largest logit; -infinity when all are -infinity or NaN.
  float (*max)(const float* logits, int64_t count);

  // sum of exp((x - max) / temperature); with `out`, also stores each term. Ranks add their sums:
  // log-sum-exp = max / temperature + log(sum). out may be logits, or null.
  float (*exp_sum)(const float* logits, int64_t count, float max, float temperature, float* out);

  // The n best in order (sampling.h: Precedes) into out[n]; returns how many there are,
  // min(n, count) less tokens at -infinity or NaN. O(count + n log n) typically.
  int64_t (*top_n)(const float* logits, int64_t count, uint32_t first_id, int64_t n,
                   TokenScore* out);
};

// The kernels of `isa`, which this machine must support.
const Kernels& KernelsFor(Isa isa);

}  // namespace weft::kernels::cpu
