// The sampler as a whole: draws, penalties, bias, log-probabilities, and one answer on any number
// of ranks.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "common/limits.h"
#include "tests/shard/sampling/sampler_rig.h"

namespace weft::shard {
namespace {

// Every way a row can be sampled.
std::vector<SamplingParams> ManyParams() {
  std::vector<SamplingParams> all(9);
  all[1].temperature = 0.9f;
  all[2].temperature = 1.1f;
  all[2].top_k = 7;
  all[3].temperature = 0.8f;
  all[3].top_p = 0.9f;
  all[4].temperature = 1.0f;
  all[4].min_p = 0.05f;
  all[5].temperature = 1.2f;
  all[5].typical_p = 0.7f;
  all[6].temperature = 1.0f;
  all[6].top_k = 40;
  all[6].typical_p = 0.9f;
  all[6].top_p = 0.95f;
  all[6].min_p = 0.01f;
  all[7].temperature = 1.0f;
  all[7].top_k = 1200;
  all[7].top_p = 0.9f;
  all[8].temperature = 0.7f;
  all[8].repetition_penalty = 1.3f;
  all[8].presence_penalty = 0.5f;
  all[8].frequency_penalty = 0.25f;
  all[8].logit_bias = {{3, 4.0f}, {900, -100.0f}};
  for (size_t i = 0; i < all.size(); ++i) all[i].seed = 1000 + i;
  return all;
}

TEST_CASE("Any number of ranks samples the same ids from the same logits",
          "[shard][compute][sampler]") {
  constexpr uint32_t kVocab = 1501;
  const std::vector<SamplingParams> all = ManyParams();
  std::vector<std::vector<TokenId>> ids_by_world;
  for (uint32_t world = 1; world <= 4; ++world) {
    SamplerRig rig(kVocab, world);
    for (Slot slot = 0; slot < all.size(); ++slot) rig.Begin(StartOf(slot, all[slot]));
    std::vector<TokenId> ids;
    for (Position position = 5; position < 45; ++position) {
      std::vector<SamplerRig::Row> rows;
      for (Slot slot = 0; slot < all.size(); ++slot) {
        rows.push_back({slot, position, RandomLogits(kVocab, position * 31 + slot)});
      }
      const StepResult result = rig.Sample(rows);
      ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    }
    ids_by_world.push_back(ids);
  }
  for (size_t i = 1; i < ids_by_world.size(); ++i) CHECK(ids_by_world[i] == ids_by_world[0]);
}

TEST_CASE("A row's token does not depend on its batch neighbours", "[shard][compute][sampler]") {
  constexpr uint32_t kVocab = 777;
  const std::vector<SamplingParams> all = ManyParams();
  SamplerRig together(kVocab, 1);
  for (Slot slot = 0; slot < all.size(); ++slot) together.Begin(StartOf(slot, all[slot]));
  std::vector<SamplerRig::Row> rows;
  for (Slot slot = 0; slot < all.size(); ++slot) {
    rows.push_back({slot, 12, RandomLogits(kVocab, slot)});
  }
  const StepResult result = together.Sample(rows);
  for (Slot slot = 0; slot < all.size(); ++slot) {
    SamplerRig alone(kVocab, 1);
    // In another slot, too.
    alone.Begin(StartOf(3, all[slot]));
    CHECK(alone.Sample({{3, 12, rows[slot].logits}}).ids.at(0) == result.ids.at(slot));
    CHECK(together.last_token(slot) == result.ids.at(slot));
  }
}

// Chi-square of observed counts against probabilities; expected counts below 5 are pooled.
double ChiSquarePerDegree(const std::vector<int>& counts, const std::vector<double>& probabilities,
                          int draws) {
  double chi_square = 0;
  double pooled_expected = 0;
  double pooled_count = 0;
  int degrees = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * draws;
    if (expected < 5) {
      pooled_expected += expected;
      pooled_count += counts[i];
      continue;
    }
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++degrees;
  }
  if (pooled_expected >= 5) {
    chi_square +=
        (pooled_count - pooled_expected) * (pooled_count - pooled_expected) / pooled_expected;
    ++degrees;
  } else {
    // Nothing worth counting may have been drawn.
    CHECK(pooled_count <= pooled_expected + 10);
  }
  // Normal approximation of the chi-square distribution: standard deviations above its mean.
  return (chi_square - degrees) / std::sqrt(2.0 * std::max(degrees, 1));
}

TEST_CASE("Draws follow the distribution that the filters leave",
          "[shard][compute][sampler][long]") {
  constexpr uint32_t kVocab = 61;
  constexpr int kDraws = 24000;
  const std::vector<float> logits = RandomLogits(kVocab, 5);
  for (const uint32_t world : {1u, 3u}) {
    for (const bool by_seed : {false, true}) {
      for (const size_t index : {size_t{1}, size_t{2}, size_t{3}, size_t{4}}) {
        SamplingParams params = ManyParams()[index];
        // The expected distribution, by plain sorting.
        std::vector<double> weights(kVocab);
        for (uint32_t i = 0; i < kVocab; ++i) {
          weights[i] = std::exp(double{logits[i]} / params.temperature);
        }
        std::vector<uint32_t> order(kVocab);
        for (uint32_t i = 0; i < kVocab; ++i) order[i] = i;
        std::sort(order.begin(), order.end(),
                  [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
        double total = 0;
        for (const double weight : weights) total += weight;
        double before = 0;
        double kept_total = 0;
        const double best = weights[order[0]];
        std::vector<double> kept(kVocab, 0.0);
        for (uint32_t i = 0; i < kVocab; ++i) {
          const double weight = weights[order[i]];
          const bool keep = (params.top_k == 0 || i < params.top_k) &&
                            before < params.top_p * total && weight >= params.min_p * best;
          before += weight;
          if (!keep) continue;
          kept[order[i]] = weight;
          kept_total += weight;
        }
        for (double& weight : kept) weight /= kept_total;

        SamplerRig rig(kVocab, world);
        std::vector<int> counts(kVocab, 0);
        for (int i = 0; i < kDraws / 8; ++i) {
          std::vector<SamplerRig::Row> rows;
          for (Slot slot = 0; slot < 8; ++slot) {
            const uint32_t draw = static_cast<uint32_t>(i) * 8 + slot;
            params.seed = by_seed ? draw : 99;
            if (by_seed || i == 0) rig.Begin(StartOf(slot, params));
            rows.push_back({slot, by_seed ? 4 : draw, logits});
          }
          for (const TokenId id : rig.Sample(rows).ids) ++counts[id];
        }
        INFO("world " << world << ", by seed " << by_seed << ", parameters " << index);
        for (uint32_t i = 0; i < kVocab; ++i) {
          if (kept[i] == 0) REQUIRE(counts[i] == 0);
        }
        CHECK(ChiSquarePerDegree(counts, kept, kDraws) < 4.0);
      }
    }
  }
}

TEST_CASE("Presence and frequency penalties count the output only", "[shard][compute][sampler]") {
  for (const uint32_t world : {1u, 2u}) {
    SamplerRig rig(10, world);
    SequenceStart start;
    start.sampling.presence_penalty = 1.0f;
    start.sampling.frequency_penalty = 0.5f;
    // 7 three times in the prompt, 8 twice in the output.
    start.penalty_ids = {7, 7, 7, 8, 8};
    start.prompt_len = 3;
    rig.Begin(start);
    std::vector<float> logits(10, 0.0f);
    logits[7] = 2.0f;
    logits[8] = 4.1f;
    logits[9] = 2.05f;
    // 8: 4.1 - 1 - 2 * 0.5 = 2.1, still the best; then 1.6.
    CHECK(rig.Sample({{0, 5, logits}}).ids.at(0) == 8);
    CHECK(rig.Sample({{0, 6, logits}}).ids.at(0) == 9);
    // 9: 2.05 - 1.5 = 0.55; 7 is unpunished.
    CHECK(rig.Sample({{0, 7, logits}}).ids.at(0) == 7);
    CHECK(rig.Sample({{0, 8, logits}}).ids.at(0) == 8);
  }
}

TEST_CASE("A bias is added before penalties and decides greedily", "[shard][compute][sampler]") {
  SamplerRig rig(6, 2);
  SamplingParams params;
  params.logit_bias = {{4, 3.0f}, {1, -100.0f}};
  params.repetition_penalty = 2.0f;
  SequenceStart start = StartOf(0, params);
  start.penalty_ids = {4};
  start.prompt_len = 1;
  rig.Begin(start);
  // 4: (-2 + 3) / 2 = 0.5; the other order would give -2 * 2 + 3 = -1.
  CHECK(rig.Sample({{0, 1, {0.4f, 50.0f, 0, 0, -2.0f, 0}}}).ids.at(0) == 4);
  SamplerRig other(6, 2);
  other.Begin(start);
  CHECK(other.Sample({{0, 1, {0.6f, 50.0f, 0, 0, -2.0f, 0}}}).ids.at(0) == 0);
}

TEST_CASE("Ids that end an answer are held back until it has its least length",
          "[shard][compute][sampler]") {
  for (const uint32_t world : {1u, 2u}) {
    for (const float top_p : {1.0f, 0.9f}) {
      SamplerRig rig(10, world);
      SequenceStart start;
      start.sampling.min_tokens = 2;
      start.sampling.held_ids = {2, 7};
      start.sampling.logit_bias = {{7, 5.0f}};
      start.sampling.logprobs = true;
      start.sampling.top_p = top_p;
      start.prompt_len = 3;
      rig.Begin(start);
      std::vector<float> logits(10, 0.0f);
      logits[2] = 9.0f;
      logits[5] = 1.0f;
      logits[7] = 8.0f;
      CHECK(rig.Sample({{0, 3, logits}}).ids.at(0) == 5);
      const StepResult second = rig.Sample({{0, 4, logits}});
      CHECK(second.ids.at(0) == 5);
      // Of the model's own distribution all the same.
      CHECK(second.logprobs.at(0).logprob == Approx(-8.32).margin(0.02));
      CHECK(rig.Sample({{0, 5, logits}}).ids.at(0) == 7);
    }
  }
}

TEST_CASE("Log-probabilities are the model's own, whatever sampling does to the logits",
          "[shard][compute][sampler]") {
  constexpr uint32_t kVocab = 503;
  const std::vector<float> logits = RandomLogits(kVocab, 77);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  std::vector<TokenId> order(kVocab);
  for (uint32_t i = 0; i < kVocab; ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  for (const uint32_t world : {1u, 2u, 4u}) {
    SamplerRig rig(kVocab, world);
    const std::vector<SamplingParams> all = ManyParams();
    std::vector<SamplerRig::Row> rows;
    for (Slot slot = 0; slot < all.size(); ++slot) {
      SamplingParams params = all[slot];
      // Every other row asks.
      params.logprobs = slot % 2 == 0;
      params.top_logprobs = slot;
      params.logit_bias.push_back({5, 100.0f});
      SequenceStart start = StartOf(slot, params);
      start.penalty_ids = {5, 6, order[0]};
      start.prompt_len = 1;
      rig.Begin(start);
      rows.push_back({slot, 9, logits});
    }
    const StepResult result = rig.Sample(rows);
    REQUIRE(result.logprobs.size() == 5);
    for (size_t i = 0; i < result.logprobs.size(); ++i) {
      const SampledLogprobs& row = result.logprobs[i];
      CHECK(row.row == 2 * i);
      // The bias makes every row choose 5, which the model does not like that much.
      CHECK(result.ids.at(row.row) == 5);
      CHECK(row.logprob == Approx(logits[5] - std::log(sum)).margin(1e-5));
      REQUIRE(row.top.size() == 2 * i);
      for (size_t k = 0; k < row.top.size(); ++k) {
        CHECK(row.top[k].first == order[k]);
        CHECK(row.top[k].second == Approx(logits[order[k]] - std::log(sum)).margin(1e-5));
      }
    }
  }
}

TEST_CASE("A row of a slot that holds no sequence is refused", "[shard][compute][sampler]") {
  SamplerRig rig(6, 1);
  CHECK_THROWS_WITH(rig.Sample({{2, 1, std::vector<float>(6, 0.0f)}}),
                    Catch::Contains("slot 2 holds no sequence"));
}

}  // namespace
}  // namespace weft::shard
