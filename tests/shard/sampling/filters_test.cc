// Filters and repetition penalty against transformers' logits processors
// (tests/goldens/sampling/golden.json).

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "shard/sampling/filters.h"
#include "tests/shard/sampling/sampler_rig.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/runnable_isas.h"

namespace weft::shard {
namespace {

using kernels::cpu::Isa;

std::vector<float> Floats(const boost::json::value& array) {
  std::vector<float> values;
  for (const boost::json::value& value : array.as_array()) {
    values.push_back(static_cast<float>(value.to_number<double>()));
  }
  return values;
}

float Number(const boost::json::value& object, const char* name, float neutral) {
  const boost::json::value* value = object.as_object().if_contains(name);
  return value == nullptr ? neutral : static_cast<float>(value->to_number<double>());
}

SamplingParams Params(const boost::json::value& golden_case) {
  SamplingParams params;
  params.temperature = Number(golden_case, "temperature", 1.0f);
  params.top_k = static_cast<uint32_t>(Number(golden_case, "top_k", 0));
  params.top_p = Number(golden_case, "top_p", 1.0f);
  params.typical_p = Number(golden_case, "typical_p", 1.0f);
  params.min_p = Number(golden_case, "min_p", 0.0f);
  return params;
}

std::vector<Candidate> Survivors(const kernels::cpu::Kernels& kernels, const SamplingParams& params,
                                 const std::vector<float>& scores) {
  FilterScratch scratch;
  std::vector<Candidate> kept;
  FilterScores(kernels, params, scores.data(), static_cast<int64_t>(scores.size()), &scratch,
               &kept);
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return kept;
}

TEST_CASE("Filters keep what transformers' warpers keep", "[shard][compute][sampler]") {
  const boost::json::value golden = test::ReadGolden("sampling/golden.json");
  REQUIRE(golden.at("cases").as_array().size() > 50);
  for (const Isa isa : test::RunnableIsas()) {
    for (const boost::json::value& golden_case : golden.at("cases").as_array()) {
      INFO(kernels::cpu::IsaName(isa) << " " << boost::json::serialize(golden_case));
      const SamplingParams params = Params(golden_case);
      const std::vector<float> scores =
          Floats(golden.at("rows").at(golden_case.at("row").as_string()));
      const std::vector<Candidate> kept = Survivors(kernels::cpu::KernelsFor(isa), params, scores);
      std::vector<TokenId> ids;
      std::vector<double> weights;
      for (const Candidate& candidate : kept) {
        ids.push_back(candidate.id);
        weights.push_back(std::exp(candidate.score / params.temperature));
      }
      std::vector<TokenId> expected;
      for (const boost::json::value& id : golden_case.at("kept").as_array()) {
        expected.push_back(id.to_number<TokenId>());
      }
      REQUIRE(ids == expected);
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      const std::vector<float> probabilities = Floats(golden_case.at("probabilities"));
      for (size_t i = 0; i < ids.size(); ++i) {
        REQUIRE(weights[i] / total == Approx(probabilities[i]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("Ties at the edge of a filter go to the lowest id", "[shard][compute][sampler]") {
  const auto& kernels = kernels::cpu::KernelsFor(kernels::cpu::BestIsa());
  const std::vector<float> scores = {1, 3, 2, 3, 2, 2, 2, 0};
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 4;
  std::vector<TokenId> ids;
  for (const Candidate& kept : Survivors(kernels, params, scores)) ids.push_back(kept.id);
  CHECK(ids == std::vector<TokenId>{1, 2, 3, 4});
  // Mass of the two best is 0.54; a third one is needed, and it is the lowest of the equals.
  params.top_k = 0;
  params.top_p = 0.6f;
  ids.clear();
  for (const Candidate& kept : Survivors(kernels, params, scores)) ids.push_back(kept.id);
  CHECK(ids == std::vector<TokenId>{1, 2, 3});
}

TEST_CASE("A min-p of one keeps the best and its equals", "[shard][compute][sampler]") {
  for (const Isa isa : test::RunnableIsas()) {
    INFO(kernels::cpu::IsaName(isa));
    SamplingParams params;
    params.temperature = 1.0f;
    params.min_p = 1.0f;
    std::vector<TokenId> ids;
    for (const Candidate& one : Survivors(kernels::cpu::KernelsFor(isa), params, {1, 3, 2, 3})) {
      ids.push_back(one.id);
    }
    CHECK(ids == std::vector<TokenId>{1, 3});
  }
}

TEST_CASE("Top-p keeps no token behind exactly its mass", "[shard][compute][sampler]") {
  for (const Isa isa : test::RunnableIsas()) {
    INFO(kernels::cpu::IsaName(isa));
    const auto kept = [isa](const std::vector<float>& scores, float top_p) {
      SamplingParams params;
      params.temperature = 1.0f;
      params.top_p = top_p;
      std::vector<TokenId> ids;
      for (const Candidate& one : Survivors(kernels::cpu::KernelsFor(isa), params, scores)) {
        ids.push_back(one.id);
      }
      return ids;
    };
    // Equal scores have weights of 1: the sums are exact.
    CHECK(kept({2, 2}, 0.5f) == std::vector<TokenId>{0});
    CHECK(kept({2, 2, 2, 2}, 0.5f) == std::vector<TokenId>{0, 1});
    CHECK(kept({2, 2, 2, 2}, 0.51f) == std::vector<TokenId>{0, 1, 2});
    CHECK(kept({2, 2, 2, 2}, 0.25f) == std::vector<TokenId>{0});
  }
}

TEST_CASE("Filters on a large flat vocabulary agree with plain sorting",
          "[shard][compute][sampler]") {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto& kernels = kernels::cpu::KernelsFor(kernels::cpu::BestIsa());
  for (const float spread : {0.05f, 1.0f, 3.0f}) {
    std::vector<float> scores(20000);
    for (float& score : scores) score = normal(random) * spread;
    for (const float top_p : {0.1f, 0.8f, 0.999f}) {
      SamplingParams params;
      params.temperature = 1.0f;
      params.top_p = top_p;
      std::vector<float> sorted = scores;
      std::sort(sorted.begin(), sorted.end(), std::greater<float>());
      double total = 0;
      for (const float score : sorted) total += std::exp(double{score});
      double mass = 0;
      size_t expected = 0;
      while (mass < top_p * total) mass += std::exp(double{sorted[expected++]});
      const auto kept = static_cast<double>(Survivors(kernels, params, scores).size());
      INFO("spread " << spread << " top-p " << top_p);
      // One token of 20,000 weighs about 5e-5: rounding may move the cut by a few.
      CHECK(kept == Approx(static_cast<double>(expected)).margin(3));
    }
  }
}

TEST_CASE("Repetition penalty is that of transformers", "[shard][compute][sampler]") {
  const boost::json::value golden = test::ReadGolden("sampling/golden.json");
  for (const boost::json::value& golden_case : golden.at("repetition").as_array()) {
    const std::vector<float> logits =
        Floats(golden.at("rows").at(golden_case.at("row").as_string()));
    const std::vector<float> scores = Floats(golden_case.at("scores"));
    SequenceStart start;
    start.sampling.repetition_penalty = Number(golden_case, "repetition_penalty", 1.0f);
    for (const boost::json::value& id : golden_case.at("ids").as_array()) {
      start.penalty_ids.push_back(id.to_number<TokenId>());
    }
    std::vector<float> expected = logits;
    for (size_t i = 0; i < scores.size(); ++i) expected[start.penalty_ids[i]] = scores[i];
    const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
    for (const uint32_t world : {1u, 2u, 3u}) {
      // Prompt or output: the penalty is the same.
      for (const uint32_t prompt_len : {0u, 30u, 60u}) {
        start.prompt_len = prompt_len;
        SamplerRig rig(static_cast<uint32_t>(logits.size()), world);
        rig.Begin(start);
        CHECK(rig.Sample({{0, 60, logits}}).ids.at(0) == static_cast<TokenId>(best));
      }
    }
  }
}

}  // namespace
}  // namespace weft::shard
