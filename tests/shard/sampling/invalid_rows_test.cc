// Logits that are no distribution: rows that hold NaN or +infinity or nothing finite are reported
// by every rank alike, whatever their parameters; their neighbours are not disturbed.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/shard/sampling/sampler_rig.h"

namespace weft::shard {
namespace {

constexpr uint32_t kVocab = 1300;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One of each way in which ranks agree on a token.
std::vector<SamplingParams> EveryPath() {
  std::vector<SamplingParams> all(6);
  all[1].temperature = 0.9f;
  all[2].temperature = 1.0f;
  all[2].top_k = 7;
  all[3].temperature = 1.0f;
  all[3].top_p = 0.9f;
  all[4].temperature = 1.0f;
  all[4].typical_p = 0.5f;
  all[5].logprobs = true;
  all[5].top_logprobs = 3;
  all[5].repetition_penalty = 1.2f;
  return all;
}

std::vector<float> GoodLogits() {
  std::vector<float> logits(kVocab);
  for (uint32_t i = 0; i < kVocab; ++i) logits[i] = std::sin(static_cast<float>(i) * 0.37f);
  return logits;
}

TEST_CASE("A row with NaN or infinity anywhere is reported, and no other", "[shard][sampler]") {
  std::vector<std::vector<float>> broken;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (const uint32_t at : {0u, 17u, 650u, kVocab - 1}) {
      broken.push_back(GoodLogits());
      broken.back()[at] = bad;
    }
    broken.emplace_back(kVocab, bad);
  }
  broken.emplace_back(kVocab, -kInfinity);
  for (const uint32_t world : {1u, 2u, 3u}) {
    for (const SamplingParams& params : EveryPath()) {
      for (const std::vector<float>& logits : broken) {
        SamplerRig rig(kVocab, world);
        for (const Slot slot : {0u, 1u, 2u}) {
          SequenceStart start;
          start.slot = slot;
          start.sampling = params;
          rig.Begin(start);
        }
        const StepResult alone = rig.Sample({{0, 5, GoodLogits()}});
        CHECK(alone.invalid_rows.empty());
        const StepResult result =
            rig.Sample({{1, 5, GoodLogits()}, {0, 5, logits}, {2, 5, GoodLogits()}});
        INFO("world " << world << " temperature " << params.temperature << " top_k "
                      << params.top_k);
        REQUIRE(result.invalid_rows == std::vector<uint32_t>{1});
        CHECK(result.ids[0] == alone.ids[0]);
        CHECK(result.ids[2] == alone.ids[0]);
        CHECK(result.ids[1] == 0);
        CHECK(rig.last_token(0) == 0);
      }
    }
  }
}

TEST_CASE("Tokens at -infinity beside finite ones leave a row valid", "[shard][sampler]") {
  std::vector<float> logits(kVocab, -kInfinity);
  logits[900] = -3.0f;
  for (const SamplingParams& params : EveryPath()) {
    SamplerRig rig(kVocab, 3);
    SequenceStart start;
    start.sampling = params;
    rig.Begin(start);
    const StepResult result = rig.Sample({{0, 5, logits}});
    CHECK(result.invalid_rows.empty());
    CHECK(result.ids[0] == 900);
  }
}

TEST_CASE("Filters put infinite distances into the last bucket", "[shard][sampler]") {
  // So small a temperature that the distance of all tokens but the best is infinite.
  SamplingParams params;
  params.temperature = 1e-38f;
  params.typical_p = 0.5f;
  std::vector<float> logits(kVocab, -1e5f);
  logits[4] = 7.0f;
  FilterScratch scratch;
  std::vector<Candidate> candidates;
  FilterScores(kernels::cpu::KernelsFor(kernels::cpu::BestIsa()), params, logits.data(), kVocab,
               &scratch, &candidates);
  REQUIRE(candidates.size() == 1);
  CHECK(candidates[0].id == 4);
}

}  // namespace
}  // namespace weft::shard
