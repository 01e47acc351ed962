// What the experts of a step's few rows make of them, in one launch that is bound by reading their
// matrices. For the places p of row r, of expert e:
//
//   made[p, j] = act(g) * u, or the clamped SwiGLU of g and u, with
//                g = sum over i of in[r, i] * gate_up[e][j, i] + gate_up_bias[e][j], u likewise by
//                row mlp + j, both rounded to bf16
//   out[r, j] = beside[r, j] + sum over p, in the order of the experts, of weights[p] *
//               (sum over i of made[p, i] * down[e][j, i] + down_bias[e][j])
//
// A single row can choose its experts in the same launch: its input is then
// bf16(RMSNorm(residual)), and its router's numbers and choices are those of route.h. Every block
// computes the norm and makes the choice for itself; the numbers they share, one or two each.
//
// Built as Gemv (gemm/gemv.h) and of its parts: one block per multiprocessor, a ring of weights
// under way, one to eight rows by the same matrix instructions. Blocks wait for each other for the
// router's numbers, and between the two products, while the second one's first weights come in, up
// to 200 KB a block: the device must hold as many blocks as it has multiprocessors at once, as it
// does when no other process shares it by streams of its own. Moves each matrix that a row takes
// once; the work is dealt out on the device, so that a captured launch serves whatever the router
// chose. Sums in float32 in an order that depends on hidden and mlp alone, then on the row's own
// experts: of rows whose experts are chosen in front, bits depend neither on neighbours nor on
// their number.
//
// bf16 throughout but for what is added to; all pointers 16-byte aligned, everything contiguous.

#pragma once

#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/gemm/gemv.h"

namespace weft::kernels::cuda {

// What a single row chooses its experts with.
struct FewRowsRouter {
  // bf16 [experts, hidden], no kernel that may still run writes it; null: experts are chosen
  // already.
  const void* weight = nullptr;
  // bf16 [experts], under the same rule; or null.
  const void* bias = nullptr;
  // float32 [hidden]; may be what is added to.
  const float* residual = nullptr;
  // bf16 [hidden], under the rule of `weight`.
  const void* norm_weight = nullptr;
  float epsilon = 0;
  // float32 [experts], for the router's numbers.
  float* numbers = nullptr;
  // How the choice is made: all but the numbers, the rows and what is written.
  RouteParams choice;
};

struct FewRowsExpertsParams {
  // [experts, 2 * mlp, hidden] and [experts, hidden, mlp]; no kernel that may still run writes
  // them.
  const void* gate_up = nullptr;
  const void* down = nullptr;
  // [experts, 2 * mlp], [experts, hidden], under the same rule; or null.
  const void* gate_up_bias = nullptr;
  const void* down_bias = nullptr;
  // [rows, hidden]; not read with a router.
  const void* in = nullptr;
  // [rows * per_token, mlp], for what lies between the products.
  void* made = nullptr;
  // [rows, hidden].
  void* out = nullptr;
  // `out` is float32 and added to.
  bool accumulates = false;
  // [rows, hidden], may be `out`; or null for zeros.
  const void* beside = nullptr;
  // Made with tiles of kExpertTileRowsMin rows, so that every expert has one. With a router,
  // row_of_place and expert_of_place are written and the others not looked at.
  ExpertRoutes routes;
  // One row only, up to kFewRowsRoutedMax experts.
  FewRowsRouter router;
  // ServesFewRowsExperts.
  uint32_t rows = 0;
  uint32_t experts = 0;
  uint32_t per_token = 0;
  uint32_t hidden = 0;
  uint32_t mlp = 0;
  ActivationKind activation = ActivationKind::kSilu;
  // kClampedSwiglu only.
  float limit = 0;
  // As GemvParams has it, and may be the same.
  void* workspace = nullptr;
  // A hint, as GemvParams has it, of a Gemv with a workspace.
  GemvNext next;
  // May start before the kernel in front of it ends.
  bool dependent = false;
};

// Experts that a single row can be routed to.
inline constexpr uint32_t kFewRowsRoutedMax = 256;

bool ServesFewRowsExperts(uint32_t rows, uint32_t per_token, uint32_t hidden, uint32_t mlp,
                          DType type);

// cudaErrorInvalidValue outside the limits above.
cudaError_t FewRowsExperts(const FewRowsExpertsParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
