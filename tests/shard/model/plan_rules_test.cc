// The recorded forward, and what rules make of it. Pure.

#include "shard/model/plan_rules.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "shard/model/decoder.h"

namespace weft::shard {
namespace {

DecoderSpec Spec(uint32_t layers, bool biases = false) {
  DecoderSpec spec;
  spec.layers = layers;
  spec.attention_kinds[0].rope.dims = 8;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = biases;
  return spec;
}

std::vector<size_t> CountFits(absl::Span<const PlanRule* const> rules, LayerPlan plan) {
  return ApplyRules(rules, &plan);
}

std::vector<std::string> Texts(const std::vector<PlanOp>& ops) {
  std::vector<std::string> texts;
  for (const PlanOp& op : ops) texts.push_back(PlanOpText(op));
  return texts;
}

TEST_CASE("Each layer is recorded with its own kind of attention", "[shard][plan]") {
  DecoderSpec spec = Spec(3);
  spec.attention_kinds.resize(2);
  spec.attention_kinds[1].window_tokens = 16;
  spec.layer_attention = {1, 0, 1};
  const LayerPlan plan = RecordForward(spec, 1);
  std::vector<std::string> texts;
  for (const auto* part : {&plan.body, &plan.tail}) {
    for (const PlanOp& op : *part) {
      if (op.kind == OpKind::kAttend || op.kind == OpKind::kRotateAppend) {
        texts.push_back(PlanOpText(op));
      }
    }
  }
  CHECK(texts == std::vector<std::string>{
                     "rotate and append: qkv -> qkv, without rotation",
                     "attend: qkv -> attention, window 16",
                     "rotate and append: qkv -> qkv",
                     "attend: qkv -> attention",
                     "rotate and append: qkv -> qkv, without rotation",
                     "attend: qkv -> attention, window 16",
                 });
}

TEST_CASE("A forward is recorded plainly, cut where only sampled rows go on", "[shard][plan]") {
  const LayerPlan plan = RecordForward(Spec(1), 1);
  CHECK(Texts(plan.body) == std::vector<std::string>{
                                "embed: - -> residual",
                                "norm attention: residual -> normed",
                                "linear qkv: normed -> qkv",
                                "rotate and append: qkv -> qkv",
                            });
  CHECK(Texts(plan.tail) == std::vector<std::string>{
                                "keep sampled rows: - -> -",
                                "attend: qkv -> attention",
                                "linear output: attention -> partial",
                                "add to residual: partial -> residual",
                                "norm mlp: residual -> normed",
                                "linear gate_up: normed -> gate_up",
                                "activate: gate_up -> mlp",
                                "linear down: mlp -> partial",
                                "add to residual: partial -> residual",
                                "norm final: residual -> normed",
                                "linear head: normed -> logits",
                            });
}

TEST_CASE("An embedding of another width is projected, and norms stand behind their sums",
          "[shard][plan]") {
  DecoderSpec spec = Spec(1);
  spec.embedding_dim = 4;
  spec.position = PositionKind::kLearned;
  spec.attention_kinds[0].rope.dims = 0;
  spec.residual_norms = true;
  spec.final_norm = false;
  const LayerPlan plan = RecordForward(spec, 2);
  CHECK(Texts(plan.body) == std::vector<std::string>{
                                "embed: - -> embedded",
                                "sum over ranks: embedded -> embedded",
                                "round: embedded -> normed",
                                "linear project_in: normed -> residual",
                                "add positions: - -> residual",
                                "round: residual -> normed",
                                "linear qkv: normed -> qkv",
                                "rotate and append: qkv -> qkv, without rotation",
                            });
  CHECK(Texts(plan.tail) == std::vector<std::string>{
                                "keep sampled rows: - -> -",
                                "attend: qkv -> attention",
                                "linear output: attention -> partial",
                                "sum over ranks: partial -> partial",
                                "add to residual: partial -> residual",
                                "norm of the residual attention: residual -> residual",
                                "round: residual -> normed",
                                "linear gate_up: normed -> gate_up",
                                "activate: gate_up -> mlp",
                                "linear down: mlp -> partial",
                                "sum over ranks: partial -> partial",
                                "add to residual: partial -> residual",
                                "norm of the residual mlp: residual -> residual",
                                "round: residual -> normed",
                                "linear project_out: normed -> embedded",
                                "round: embedded -> normed",
                                "linear head: normed -> logits",
                                "gather logits: logits -> logits",
                            });
}

TEST_CASE("Ranks sum what row-parallel products and the embedding give", "[shard][plan]") {
  const LayerPlan plan = RecordForward(Spec(3), 2);
  size_t sums = 0;
  for (const auto* part : {&plan.body, &plan.tail}) {
    for (const PlanOp& op : *part) sums += op.kind == OpKind::kSumRanks ? 1 : 0;
  }
  CHECK(sums == 1 + 2 * 3);
  CHECK(plan.tail.back().kind == OpKind::kGatherLogits);
}

TEST_CASE("Operations know their layer, those behind the layers their number", "[shard][plan]") {
  const LayerPlan plan = RecordForward(Spec(3), 1);
  CHECK(plan.body.front().layer == 0);
  CHECK(plan.tail.front().layer == 2);
  CHECK(plan.tail.back().layer == 3);
}

TEST_CASE("Biases are joined only where they stand", "[shard][plan]") {
  const PlanRule* const rules[] = {&kBiasIntoRotation};
  CHECK(CountFits(rules, RecordForward(Spec(4), 1)) == std::vector<size_t>{0});
  CHECK(CountFits(rules, RecordForward(Spec(4, true), 1)) == std::vector<size_t>{4});
}

TEST_CASE("A gate and up product with a bias of its own does not activate", "[shard][plan]") {
  LayerPlan plan = RecordForward(Spec(1, true), 1);
  const PlanRule* const rules[] = {&kFewRowsProduct, &kActivationIntoFewRows};
  CHECK(CountFits(rules, plan)[1] == 0);
  CHECK(CountFits(rules, RecordForward(Spec(1), 1))[1] == 1);
}

TEST_CASE("A layer with experts chooses, multiplies, and combines behind what all share",
          "[shard][plan]") {
  DecoderSpec spec = Spec(2);
  spec.experts.count = 4;
  spec.experts.per_token = 2;
  spec.experts.shared_hidden = 8;
  spec.experts.shared_scale = true;
  spec.experts.plain_layers = {true, false};
  LayerPlan plan = RecordForward(spec, 1);
  std::vector<std::string> texts = Texts(plan.tail);
  texts.erase(texts.begin(), texts.begin() + 4);  // attention and its product
  CHECK(texts == std::vector<std::string>{
                     "norm mlp: residual -> normed",
                     "linear gate_up: normed -> gate_up",
                     "activate: gate_up -> mlp",
                     "linear down: mlp -> partial",
                     "scale what all tokens share: normed -> partial",
                     "linear router: normed -> routes",
                     "route: routes -> routes",
                     "experts' linear gate_up: normed -> experts' gate_up",
                     "activate: experts' gate_up -> experts' mlp",
                     "experts' linear down: experts' mlp -> experts' out",
                     "combine experts: experts' out -> partial",
                     "add to residual: partial -> residual",
                     "norm final: residual -> normed",
                     "linear head: normed -> logits",
                 });
  // The plain layer's down product alone is followed by the residual.
  const PlanRule* const rules[] = {&kActivationIntoExperts, &kResidualIntoCombine,
                                   &kResidualIntoProduct};
  CHECK(CountFits(rules, plan) == std::vector<size_t>{1, 1, 3});
}

TEST_CASE("Latent attention widens queries, keeps latents and narrows what it makes",
          "[shard][plan]") {
  DecoderSpec spec = Spec(1);
  spec.kv_heads = 1;
  spec.latent = {.rank = 8, .query_rank = 4, .plain_dim = 6, .value_dim = 2};
  LayerPlan plan = RecordForward(spec, 1);
  std::vector<std::string> texts = Texts(plan.body);
  CHECK(std::vector<std::string>(texts.begin() + 1, texts.end()) ==
        std::vector<std::string>{
            "norm attention: residual -> normed",
            "linear query down: normed -> query latent",
            "linear latent: normed -> latent",
            "norm of a latent: query latent -> query latent, with the query latent norm",
            "linear query: query latent -> heads' query",
            "norm of a latent: latent -> latent, with the latent norm",
            "heads' linear key up: heads' query -> qkv",
            "rotate and append: heads' query -> qkv",
        });
  texts = Texts(plan.tail);
  texts.resize(4);
  CHECK(texts == std::vector<std::string>{
                     "keep sampled rows: - -> -",
                     "attend: qkv -> attention",
                     "heads' linear value up: attention -> heads' value",
                     "linear output: heads' value -> partial",
                 });
  // Queries may be made of the normed rows; no rule then takes the norm into one of its readers.
  spec.latent.query_rank = 0;
  plan = RecordForward(spec, 1);
  CHECK(Texts(plan.body)[3] == "linear query: normed -> heads' query");
  const PlanRule* const rules[] = {&kFewRowsProduct, &kNormIntoProduct, &kRotationIntoProduct};
  const std::vector<size_t> fits = CountFits(rules, plan);
  CHECK(fits[0] == 6);
  // Those of the MLP and the head.
  CHECK(fits[1] == 2);
  CHECK(fits[2] == 0);
}

TEST_CASE("What follows a library's collective waits for it", "[shard][plan]") {
  LayerPlan plan = RecordForward(Spec(2), 2);
  const PlanRule* const rules[] = {&kResidualIntoNorm, &kKeepAfterAttention};
  ApplyRules(rules, &plan);
  MarkCollectives(&plan);
  for (const auto* part : {&plan.body, &plan.tail}) {
    bool after = false;
    for (const PlanOp& op : *part) {
      INFO(PlanOpText(op));
      const bool collective = op.kind == OpKind::kSumRanks || op.kind == OpKind::kGatherLogits;
      CHECK(op.after_collective == (after && !collective));
      after = collective;
    }
  }
}

TEST_CASE("Products of few rows know the next one, the tail's behind the body's", "[shard][plan]") {
  LayerPlan plan = RecordForward(Spec(1), 1);
  const PlanRule* const rules[] = {&kFewRowsProduct, &kActivationIntoFewRows};
  ApplyRules(rules, &plan);
  LinkProducts(&plan);
  CHECK(plan.body[2].next_matrix == Matrix::kOutput);
  for (const PlanOp& op : plan.tail) {
    if (op.matrix == Matrix::kOutput) CHECK(op.next_epilogue == Epilogue::kActivate);
    if (op.matrix == Matrix::kDown) CHECK(op.next_matrix == Matrix::kHead);
    if (op.matrix == Matrix::kHead) CHECK(op.next_matrix == Matrix::kNone);
  }
}

}  // namespace
}  // namespace weft::shard
