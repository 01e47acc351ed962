// What a CUDA shard makes of a recorded forward: for each class of rows, which rules of
// shard/model/plan_rules.h its kernels serve. Made at load for both ways of summing over ranks,
// since an epoch decides between them; `weft inspect --plan` prints it. Pure: needs no device.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "shard/device/cuda/shape.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/layer_plan.h"
#include "shard/model/plan_rules.h"

namespace weft::shard {

// Steps by their rows, because kernels differ in what they are bound by. The tail of a step has a
// class of its own: its rows are those that sample.
enum class RowClass : uint8_t {
  kOne,   // as kFew, and its experts' inputs are small enough for the way of few rows
  kFew,   // products are bound by reading the matrix: norm, activation and residual go into them
  kSome,  // sums over ranks go through peers' memory
  kMany,
};
inline constexpr uint32_t kRowClasses = 4;

// Up to so many rows a product with norm, activation and residual sum in it is faster than cuBLASLt
// and kernels of their own for those (docs/PERFORMANCE.md).
inline constexpr uint32_t kFewRowsMax = 4;
// Beyond, NCCL's two-step sums move less than one-shot reads of all peers; of rows wider than this,
// beyond kFewRowsMax (docs/PERFORMANCE.md).
inline constexpr uint32_t kPeerRowsMax = 128;
inline constexpr uint32_t kPeerHiddenMax = 8192;

constexpr RowClass RowClassOf(uint32_t rows) {
  if (rows <= 1) return RowClass::kOne;
  if (rows <= kFewRowsMax) return RowClass::kFew;
  return rows <= kPeerRowsMax ? RowClass::kSome : RowClass::kMany;
}
const char* RowClassName(RowClass rows);

// What the choice of rules depends on besides the rows.
struct CudaPlanFacts {
  uint32_t world = 1;
  // Activations are bfloat16; float32 otherwise.
  bool bfloat16 = true;
  // All rows take one way, however many there are (--deterministic).
  bool deterministic = false;
  // Heads are rotated as a whole or not at all, as they lie in memory.
  bool whole_heads = true;
  // Norms are RMS norms by the weights as they are, which products and sums over ranks can compute.
  bool rms_norm = true;
  // Norms are LayerNorms, which sums over ranks can compute, and products of one row; with four
  // rows, each block's work on its own copy of them takes longer than a kernel that does it once.
  bool layer_norm = false;
  // MLPs are gated by SiLU, which products of experts can compute.
  bool gated_silu = true;
  // Products of few rows can activate: not gates that have biases, nor gates that are cut.
  bool few_rows_activate = true;
  // Some layers have experts.
  bool experts = false;
  // So many rows at most go through their experts in one operation.
  uint32_t few_rows_experts_max = 0;
  // A single row can choose its experts in that operation.
  bool routed_experts = false;
  // Heads can be normalised as they are rotated.
  bool norms_and_rotates = false;
  // Products of experts that can activate what they store.
  bool tensor_core_experts = false;
  // What is added to the residual is normalised first.
  bool post_norms = false;
  // Each layer sums over ranks twice, with a norm behind either sum: sums through peers' memory
  // must take their two buffers in turns (kernels/cuda/comm/all_reduce.h).
  bool paired_sums = true;
  // Rows are wider than kPeerHiddenMax.
  bool wide_rows = false;
  // The ranks map each other's memory.
  bool peers = false;
  // Rules that are not to be used, of those that IsOptional; tests leave some out.
  std::vector<const PlanRule*> left_out;
};

// Whether kernels can do without a rule: there are none for what some others join.
bool IsOptional(const PlanRule& rule);

// Of a rank's shape, without peers.
CudaPlanFacts FactsOf(const DecoderSpec& spec, const CudaShape& shape, const SlicePlan& slice,
                      bool deterministic);

// In the order in which they are applied.
std::vector<const PlanRule*> CudaPlanRules(const CudaPlanFacts& facts, RowClass rows);

// One plan for each class of rows.
using CudaPlans = std::array<LayerPlan, kRowClasses>;
CudaPlans MakeCudaPlans(const DecoderSpec& spec, const CudaPlanFacts& facts);

}  // namespace weft::shard
