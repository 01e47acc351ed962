#include "shard/device/cuda/planner.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/experts/few_rows.h"
#include "kernels/cuda/experts/product.h"
#include "shard/model/decoder.h"

namespace weft::shard {

const char* RowClassName(RowClass rows) {
  switch (rows) {
    case RowClass::kOne:
      return "one";
    case RowClass::kFew:
      return "few";
    case RowClass::kSome:
      return "some";
    case RowClass::kMany:
      return "many";
  }
  return "?";
}

CudaPlanFacts FactsOf(const DecoderSpec& spec, const CudaShape& shape, const SlicePlan& slice,
                      bool deterministic) {
  CudaPlanFacts facts;
  facts.world = slice.world;
  facts.bfloat16 = shape.type == kernels::cuda::DType::kBfloat16;
  facts.deterministic = deterministic;
  facts.whole_heads = absl::c_all_of(spec.attention_kinds, [&shape](const AttentionKind& kind) {
    return kind.rope.dims == 0 || kind.rope.dims == shape.head_stride;
  });
  facts.rms_norm = spec.norm == NormKind::kRmsNorm && spec.norm_weight_offset == 0;
  facts.layer_norm = spec.norm == NormKind::kLayerNorm && spec.norm_weight_offset == 0;
  facts.post_norms = spec.post_norms;
  facts.wide_rows = spec.hidden > kPeerHiddenMax;
  facts.paired_sums = !spec.parallel_residual && !spec.residual_norms && spec.final_norm;
  facts.experts = shape.experts > 0;
  facts.tensor_core_experts = shape.experts > 0 && kernels::cuda::ServesExpertGemm(
                                                       shape.expert_mlp, shape.hidden, shape.type);
  for (const uint32_t rows : {1u, kFewRowsMax}) {
    if (shape.experts > 0 && spec.gated_mlp &&
        kernels::cuda::ServesFewRowsExperts(rows, shape.experts_per_token, shape.hidden,
                                            shape.expert_mlp, shape.type)) {
      facts.few_rows_experts_max = rows;
    }
  }
  facts.routed_experts = facts.few_rows_experts_max > 0 && spec.experts.shared_hidden == 0 &&
                         spec.experts.count <= kernels::cuda::kFewRowsRoutedMax;
  facts.norms_and_rotates = facts.whole_heads &&
                            kernels::cuda::NormsAndRotates(shape.head_stride) &&
                            shape.head_dim == shape.head_stride;
  facts.few_rows_activate =
      !(spec.gated_mlp && spec.mlp_bias) && spec.activation != Activation::kClampedSwiglu;
  facts.gated_silu = spec.gated_mlp && spec.activation == Activation::kSilu;
  return facts;
}

bool IsOptional(const PlanRule& rule) {
  return &rule != &kResidualIntoRoundedProduct && &rule != &kKeepAfterAttention;
}

std::vector<const PlanRule*> CudaPlanRules(const CudaPlanFacts& facts, RowClass rows) {
  std::vector<const PlanRule*> rules;
  const bool few = rows <= RowClass::kFew && facts.bfloat16 && !facts.deterministic;
  const uint32_t rows_max = rows == RowClass::kOne ? 1 : kFewRowsMax;
  if (few) rules.push_back(&kFewRowsProduct);
  rules.push_back(&kBiasIntoRotation);
  if (few) rules.push_back(&kBiasIntoFewRows);
  if (facts.norms_and_rotates) rules.push_back(&kHeadNormIntoRotation);
  if (few && facts.whole_heads) rules.push_back(&kRotationIntoProduct);
  if (few && facts.few_rows_activate) rules.push_back(&kActivationIntoFewRows);
  if (few && rows_max <= facts.few_rows_experts_max) rules.push_back(&kFewRowsExperts);
  if (few && rows_max == 1 && facts.world == 1 && facts.rms_norm && facts.routed_experts) {
    rules.push_back(&kRoutingIntoExperts);
  }
  if (facts.tensor_core_experts && facts.gated_silu) rules.push_back(&kActivationIntoExperts);
  if (facts.world == 1) {
    rules.push_back(&kResidualIntoRoundedProduct);
    rules.push_back(&kResidualIntoCombine);
    if (few && (facts.rms_norm || (facts.layer_norm && rows_max == 1))) {
      rules.push_back(&kNormIntoProduct);
    }
    if (facts.post_norms) rules.push_back(&kResidualIntoNorm);
  } else {
    // Those of experts have no kernel for peers' memory.
    if (facts.peers && (facts.rms_norm || facts.layer_norm) && facts.paired_sums &&
        !facts.experts && rows <= (facts.wide_rows ? RowClass::kFew : RowClass::kSome)) {
      rules.push_back(&kSumByPeers);
    }
    rules.push_back(&kResidualIntoNorm);
  }
  rules.push_back(&kKeepAfterAttention);
  const auto is_left_out = [&facts](const PlanRule* rule) {
    return IsOptional(*rule) && absl::c_linear_search(facts.left_out, rule);
  };
  rules.erase(std::remove_if(rules.begin(), rules.end(), is_left_out), rules.end());
  return rules;
}

CudaPlans MakeCudaPlans(const DecoderSpec& spec, const CudaPlanFacts& facts) {
  CudaPlans plans;
  for (const RowClass rows : {RowClass::kOne, RowClass::kFew, RowClass::kSome, RowClass::kMany}) {
    LayerPlan plan = RecordForward(spec, facts.world);
    ApplyRules(CudaPlanRules(facts, rows), &plan);
    MarkCollectives(&plan);
    LinkProducts(&plan);
    plans[static_cast<size_t>(rows)] = std::move(plan);
  }
  return plans;
}

}  // namespace weft::shard
