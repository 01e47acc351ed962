// The operations that a CUDA shard runs for each class of rows, as text. Needs no GPU.

#include "shard/device/cuda/planner.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "shard/device/cuda/memory_plan.h"
#include "shard/weights/loader.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

DecoderSpec Spec(bool biases = false) {
  DecoderSpec spec;
  spec.layers = 2;
  spec.attention_kinds[0].rope.dims = 8;
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = biases;
  return spec;
}

std::vector<std::string> Texts(const LayerPlan& plan) {
  std::vector<std::string> texts;
  for (const auto* part : {&plan.body, &plan.tail}) {
    for (const PlanOp& op : *part) texts.push_back(PlanOpText(op));
  }
  return texts;
}

const LayerPlan& PlanOf(const CudaPlans& plans, RowClass rows) {
  return plans[static_cast<size_t>(rows)];
}

TEST_CASE("Alone, few rows run four products and one attention a layer", "[shard][cuda][plan]") {
  const CudaPlans plans = MakeCudaPlans(Spec(), {});
  CHECK(
      Texts(PlanOf(plans, RowClass::kFew)) ==
      std::vector<std::string>{
          "embed: - -> residual",
          "linear qkv: residual -> qkv, with the attention norm, rotates and appends, for few rows",
          "attend: qkv -> attention",
          "linear output: attention -> residual, adds to it, for few rows",
          "linear gate_up: residual -> mlp, with the mlp norm, activates, for few rows",
          "linear down: mlp -> residual, adds to it, for few rows",
          "linear qkv: residual -> qkv, with the attention norm, rotates and appends, for few rows",
          "attend: qkv -> attention, keeps the rows that sample",
          "linear output: attention -> residual, adds to it, for few rows",
          "linear gate_up: residual -> mlp, with the mlp norm, activates, for few rows",
          "linear down: mlp -> residual, adds to it, for few rows",
          "linear head: residual -> logits, with the final norm, for few rows",
      });
}

TEST_CASE("Alone, more rows take a kernel for each thing but the residual sum",
          "[shard][cuda][plan]") {
  const CudaPlans plans = MakeCudaPlans(Spec(), {});
  const std::vector<std::string> some = Texts(PlanOf(plans, RowClass::kSome));
  CHECK(std::vector<std::string>(some.begin(), some.begin() + 9) ==
        std::vector<std::string>{
            "embed: - -> residual",
            "norm attention: residual -> normed",
            "linear qkv: normed -> qkv",
            "rotate and append: qkv -> qkv",
            "attend: qkv -> attention",
            "linear output: attention -> residual, adds to it",
            "norm mlp: residual -> normed",
            "linear gate_up: normed -> gate_up",
            "activate: gate_up -> mlp",
        });
  CHECK(Texts(PlanOf(plans, RowClass::kMany)) == some);
}

TEST_CASE("Deterministic and float32 shards run all rows alike", "[shard][cuda][plan]") {
  CudaPlanFacts facts;
  facts.deterministic = true;
  const CudaPlans plans = MakeCudaPlans(Spec(), facts);
  CHECK(Texts(PlanOf(plans, RowClass::kFew)) == Texts(PlanOf(plans, RowClass::kMany)));
  facts = {};
  facts.bfloat16 = false;
  const CudaPlans wide = MakeCudaPlans(Spec(), facts);
  CHECK(Texts(PlanOf(wide, RowClass::kFew)) == Texts(PlanOf(wide, RowClass::kMany)));
}

TEST_CASE("In a group, sums of up to 128 rows go through peers' memory, longer ones by NCCL",
          "[shard][cuda][plan]") {
  CudaPlanFacts facts;
  facts.world = 2;
  facts.peers = true;
  facts.few_rows_activate = false;  // gates that have biases
  const CudaPlans plans = MakeCudaPlans(Spec(/*biases=*/true), facts);
  const std::vector<std::string> few = Texts(PlanOf(plans, RowClass::kFew));
  CHECK(std::vector<std::string>(few.begin(), few.begin() + 8) ==
        std::vector<std::string>{
            "embed: - -> residual",
            "sum over ranks: residual -> residual",
            "norm attention: residual -> normed, after a collective",
            "linear qkv: normed -> qkv, adds the bias, rotates and appends, for few rows",
            "attend: qkv -> attention",
            "linear output: attention -> peer partial, adds the bias, for few rows",
            "sum over ranks output: peer partial -> normed, with the mlp norm, adds to the "
            "residual, in peers' memory",
            "linear gate_up: normed -> gate_up, adds the bias, for few rows",
        });
  const std::vector<std::string> many = Texts(PlanOf(plans, RowClass::kMany));
  CHECK(std::vector<std::string>(many.begin() + 6, many.begin() + 10) ==
        std::vector<std::string>{
            "linear output: attention -> partial",
            "add bias output: - -> partial",
            "sum over ranks: partial -> partial",
            "norm mlp: partial -> normed, adds to the residual, after a collective",
        });
  CHECK(few.back() == "gather logits: logits -> logits");
}

TEST_CASE("Sums of models with experts go through NCCL alone", "[shard][cuda][plan]") {
  // Those of experts have no kernel for peers' memory, and one of a pair may not stand alone.
  CudaPlanFacts facts;
  facts.world = 2;
  facts.peers = true;
  facts.experts = true;
  DecoderSpec spec = Spec();
  spec.experts.count = 4;
  spec.experts.per_token = 2;
  for (const LayerPlan& plan : MakeCudaPlans(spec, facts)) {
    for (const auto* part : {&plan.body, &plan.tail}) {
      for (const PlanOp& op : *part) CHECK(op.way != Way::kPeers);
    }
  }
}

TEST_CASE("Experts of few rows are one operation, of those rows that fit", "[shard][cuda][plan]") {
  DecoderSpec spec = Spec();
  spec.experts.count = 4;
  spec.experts.per_token = 2;
  spec.experts.shared_hidden = 8;
  CudaPlanFacts facts;
  facts.experts = true;
  const auto joined = [&](uint32_t rows_max, RowClass rows) {
    facts.few_rows_experts_max = rows_max;
    const std::vector<std::string> texts = Texts(PlanOf(MakeCudaPlans(spec, facts), rows));
    return absl::c_linear_search(
        texts, "experts' linear experts: normed -> residual, combines, adds to it, for few rows");
  };
  CHECK(joined(kFewRowsMax, RowClass::kOne));
  CHECK(joined(kFewRowsMax, RowClass::kFew));
  CHECK_FALSE(joined(kFewRowsMax, RowClass::kSome));
  CHECK(joined(1, RowClass::kOne));
  CHECK_FALSE(joined(1, RowClass::kFew));
  CHECK_FALSE(joined(0, RowClass::kOne));
  // A single row chooses its experts there, where nothing else reads what the norm makes.
  spec.experts.shared_hidden = 0;
  facts.routed_experts = true;
  facts.few_rows_experts_max = kFewRowsMax;
  const CudaPlans plans = MakeCudaPlans(spec, facts);
  const std::string routes =
      "experts' linear experts: residual -> residual, with the mlp norm, routes, combines, adds to "
      "it, for few rows";
  CHECK(absl::c_linear_search(Texts(PlanOf(plans, RowClass::kOne)), routes));
  CHECK_FALSE(absl::c_linear_search(Texts(PlanOf(plans, RowClass::kFew)), routes));
  // In float32, and where all rows take one way, nothing is joined.
  facts.deterministic = true;
  CHECK_FALSE(joined(kFewRowsMax, RowClass::kOne));
}

TEST_CASE("Heads are normalised as they are rotated, or in attention", "[shard][cuda][plan]") {
  DecoderSpec spec = Spec();
  spec.head_norms = true;
  CudaPlanFacts facts;
  const auto lines = [&](RowClass rows) {
    const std::vector<std::string> texts = Texts(PlanOf(MakeCudaPlans(spec, facts), rows));
    return std::vector<std::string>(texts.begin() + 2, texts.begin() + 5);
  };
  CHECK(lines(RowClass::kFew)[0] == "norm of heads: qkv -> qkv");
  facts.norms_and_rotates = true;
  CHECK(lines(RowClass::kFew)[0] == "rotate and append: qkv -> qkv, normalises heads");
  CHECK(lines(RowClass::kMany)[1] == "rotate and append: qkv -> qkv, normalises heads");
}

TEST_CASE("Products of few rows take RMS norms, those of one row LayerNorms too",
          "[shard][cuda][plan]") {
  CudaPlanFacts facts;
  const auto norms = [&facts](RowClass rows, const char* kind) {
    const CudaPlans plans = MakeCudaPlans(Spec(), facts);
    return absl::c_count_if(Texts(PlanOf(plans, rows)), [kind](const std::string& text) {
      return absl::StartsWith(text, kind) && absl::StrContains(text, "with the ");
    });
  };
  // Two of each layer and the last.
  CHECK(norms(RowClass::kOne, "linear") == 5);
  CHECK(norms(RowClass::kFew, "linear") == 5);
  facts.rms_norm = false;
  CHECK(norms(RowClass::kOne, "linear") == 0);
  facts.layer_norm = true;
  CHECK(norms(RowClass::kOne, "linear") == 5);
  CHECK(norms(RowClass::kFew, "linear") == 0);
  facts.world = 2;
  facts.peers = true;
  CHECK(norms(RowClass::kOne, "sum") == 4);
  facts.rms_norm = true;
  facts.layer_norm = false;
  CHECK(norms(RowClass::kOne, "sum") == 4);
  CHECK(norms(RowClass::kSome, "sum") == 4);
  facts.wide_rows = true;
  CHECK(norms(RowClass::kFew, "sum") == 4);
  CHECK(norms(RowClass::kSome, "sum") == 0);
  facts.paired_sums = false;
  CHECK(norms(RowClass::kOne, "sum") == 0);
}

TEST_CASE("The sums of a step come in pairs, output's first", "[shard][cuda][plan]") {
  // kernels/cuda/comm/all_reduce.h: captured steps may follow each other only then.
  CudaPlanFacts facts;
  facts.world = 4;
  facts.peers = true;
  const CudaPlans plans = MakeCudaPlans(Spec(), facts);
  for (const RowClass rows : {RowClass::kFew, RowClass::kSome}) {
    const LayerPlan& plan = PlanOf(plans, rows);
    for (const auto* part : {&plan.body, &plan.tail}) {
      size_t sums = 0;
      for (const PlanOp& op : *part) {
        if (op.way != Way::kPeers) continue;
        CHECK(op.matrix == (sums % 2 == 0 ? Matrix::kOutput : Matrix::kDown));
        ++sums;
      }
      CHECK(sums == 2);
    }
  }
}

TEST_CASE("The sums of every family's steps come in pairs or not at all", "[shard][cuda][plan]") {
  size_t with_sums = 0;
  for (const std::string& name : test::GoldenModels()) {
    const auto files = ModelFiles::Open(test::GoldenModelPath(name));
    REQUIRE(files.ok());
    const DecoderSpec& spec = (*files)->spec();
    const auto slice = MakeSlicePlan(spec, 0, 2, (*files)->mlp_multiple());
    if (!slice.ok()) continue;  // its heads are too few for two
    MemoryFlags flags;
    flags.dtype = NumberType::kBfloat16;
    const auto shape = PlanCudaShape(spec, *slice, flags);
    REQUIRE(shape.ok());
    CudaPlanFacts facts = FactsOf(spec, *shape, *slice, /*deterministic=*/false);
    facts.peers = true;
    for (const LayerPlan& plan : MakeCudaPlans(spec, facts)) {
      for (const auto* part : {&plan.body, &plan.tail}) {
        size_t sums = 0;
        bool in_turns = true;
        for (const PlanOp& op : *part) {
          if (op.way != Way::kPeers) continue;
          in_turns = in_turns && op.matrix == (sums % 2 == 0 ? Matrix::kOutput : Matrix::kDown);
          ++sums;
        }
        INFO(name << ": " << sums << " sums");
        CHECK(in_turns);
        CHECK(sums % 2 == 0);
        with_sums += sums > 0 ? 1 : 0;
      }
    }
  }
  CHECK(with_sums > 0);
}

}  // namespace
}  // namespace weft::shard
