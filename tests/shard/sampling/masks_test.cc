// The sampler on masked rows: by every path, on any number of ranks, what is drawn is allowed, what
// is not masked is as before, and log-probabilities are the model's own.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "tests/shard/sampling/sampler_rig.h"

namespace weft::shard {
namespace {

RowMask MaskOf(uint32_t vocab, const std::vector<TokenId>& ids) {
  RowMask mask;
  mask.words.resize((vocab + 31) / 32);
  for (const TokenId id : ids) mask.words[id / 32] |= 1u << (id % 32);
  return mask;
}

std::vector<TokenId> RandomIds(uint32_t vocab, uint32_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(random() % vocab);
  return ids;
}

// Every way a row can be sampled, with a seed each.
std::vector<SamplingParams> Paths() {
  std::vector<SamplingParams> all(7);
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
  all[6].top_k = 1200;
  all[6].typical_p = 0.9f;
  all[6].top_p = 0.95f;
  for (size_t i = 0; i < all.size(); ++i) all[i].seed = 1000 + i;
  return all;
}

TEST_CASE("What a masked row draws is allowed, by every path and on any number of ranks",
          "[shard][compute][sampler][masks]") {
  const std::vector<SamplingParams> all = Paths();
  // No vocabulary is a multiple of a word, or of the ranks.
  const uint32_t vocab = GENERATE(13u, 97u, 1501u);
  std::vector<std::vector<TokenId>> ids_by_world;
  for (uint32_t world = 1; world <= 3; ++world) {
    SamplerRig rig(vocab, world);
    for (Slot slot = 0; slot < all.size(); ++slot) rig.Begin(StartOf(slot, all[slot]));
    std::vector<TokenId> ids;
    for (Position position = 5; position < 30; ++position) {
      std::vector<SamplerRig::Row> rows;
      std::vector<RowMask> masks;
      for (Slot slot = 0; slot < all.size(); ++slot) {
        const uint32_t seed = position * 31 + slot;
        // From one id to most of them.
        const uint32_t count = position % 5 == 0 ? 1 : (position % 5) * vocab / 4;
        masks.push_back(MaskOf(vocab, RandomIds(vocab, count, seed)));
        rows.push_back({slot, position, RandomLogits(vocab, seed)});
      }
      for (Slot slot = 0; slot < all.size(); ++slot) rows[slot].mask = &masks[slot];
      const StepResult result = rig.Sample(rows);
      CHECK(result.invalid_rows.empty());
      for (Slot slot = 0; slot < all.size(); ++slot) {
        const TokenId id = result.ids.at(slot);
        INFO("path " << slot << ", position " << position << ", world " << world);
        REQUIRE(id < vocab);
        CHECK(((masks[slot].words[id / 32] >> (id % 32)) & 1u) == 1);
      }
      ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    }
    ids_by_world.push_back(ids);
  }
  CHECK(ids_by_world[1] == ids_by_world[0]);
  CHECK(ids_by_world[2] == ids_by_world[0]);
}

TEST_CASE("A mask that allows what would be drawn changes nothing",
          "[shard][compute][sampler][masks]") {
  constexpr uint32_t kVocab = 501;
  const std::vector<SamplingParams> all = Paths();
  const RowMask whole = MaskOf(kVocab, [] {
    std::vector<TokenId> ids(kVocab);
    for (TokenId id = 0; id < kVocab; ++id) ids[id] = id;
    return ids;
  }());
  const RowMask none;
  for (const uint32_t world : {1u, 2u, 3u}) {
    SamplerRig rig(kVocab, world);
    for (Slot slot = 0; slot < all.size(); ++slot) rig.Begin(StartOf(slot, all[slot]));
    for (Position position = 0; position < 10; ++position) {
      std::vector<SamplerRig::Row> rows;
      for (Slot slot = 0; slot < all.size(); ++slot) {
        rows.push_back({slot, position, RandomLogits(kVocab, position * 7 + slot)});
      }
      const StepResult plain = rig.Sample(rows);
      for (const RowMask* mask : {&whole, &none}) {
        for (SamplerRig::Row& row : rows) row.mask = mask;
        CHECK(rig.Sample(rows).ids == plain.ids);
      }
      // The noise of an id is its own: the best of fewer is the best of all where that is allowed.
      std::vector<RowMask> masks;
      for (Slot slot = 0; slot < 2; ++slot) {
        std::vector<TokenId> ids = RandomIds(kVocab, 40, position);
        ids.push_back(plain.ids[slot]);
        masks.push_back(MaskOf(kVocab, ids));
      }
      for (Slot slot = 0; slot < 2; ++slot) rows[slot].mask = &masks[slot];
      const StepResult fewer = rig.Sample(rows);
      CHECK(fewer.ids[0] == plain.ids[0]);
      CHECK(fewer.ids[1] == plain.ids[1]);
    }
  }
}

TEST_CASE("A mask with a penalty makes what it lacks less likely by just that",
          "[shard][compute][sampler][masks]") {
  constexpr uint32_t kVocab = 97;
  const float penalty = GENERATE(0.5f, 2.0f, 100.0f);
  for (const uint32_t world : {1u, 2u, 3u}) {
    SamplerRig rig(kVocab, world);
    std::vector<SamplingParams> all = Paths();
    for (Slot slot = 0; slot < all.size(); ++slot) {
      all[slot].logprobs = true;
      all[slot].top_logprobs = 3;
      SamplingParams soft = all[slot];
      soft.mask_penalty = penalty;
      rig.Begin(StartOf(2 * slot, soft));
      rig.Begin(StartOf(2 * slot + 1, all[slot]));
    }
    for (Position position = 0; position < 20; ++position) {
      std::vector<SamplerRig::Row> rows;
      std::vector<RowMask> masks;
      for (Slot slot = 0; slot < all.size(); ++slot) {
        masks.push_back(MaskOf(kVocab, RandomIds(kVocab, 40, position * 13 + slot)));
      }
      for (Slot slot = 0; slot < all.size(); ++slot) {
        std::vector<float> logits = RandomLogits(kVocab, position * 7 + slot);
        rows.push_back({2 * slot, position, logits, &masks[slot]});
        for (TokenId id = 0; id < kVocab; ++id) {
          if (((masks[slot].words[id / 32] >> (id % 32)) & 1u) == 0) logits[id] -= penalty;
        }
        rows.push_back({2 * slot + 1, position, logits});
      }
      const StepResult result = rig.Sample(rows);
      for (Slot slot = 0; slot < all.size(); ++slot) {
        INFO("path " << slot << ", position " << position << ", world " << world);
        CHECK(result.ids.at(2 * slot) == result.ids.at(2 * slot + 1));
      }
      // Log-probabilities are those of the model, whatever the mask.
      for (const Slot slot : {0u, 1u}) {
        const std::vector<float> logits = RandomLogits(kVocab, position * 7 + slot);
        double sum = 0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
        const double expected = logits[result.ids[2 * slot]] - std::log(sum);
        CHECK(result.logprobs.at(2 * slot).logprob == Approx(expected).margin(1e-4));
      }
    }
  }
}

TEST_CASE("A masked row leaves the row beside it alone", "[shard][compute][sampler][masks]") {
  constexpr uint32_t kVocab = 40;
  SamplerRig rig(kVocab, 2);
  rig.Begin(StartOf(0, {}));
  rig.Begin(StartOf(1, {}));
  std::vector<float> logits(kVocab, 0.0f);
  logits[35] = 3.0f;
  const RowMask mask = MaskOf(kVocab, {3});
  const StepResult result = rig.Sample({{0, 4, logits, &mask}, {1, 4, logits}});
  CHECK(result.ids == std::vector<TokenId>{3, 35});
}

TEST_CASE("A mask outweighs any bias, and penalties count among what is allowed",
          "[shard][compute][sampler][masks]") {
  constexpr uint32_t kVocab = 40;
  for (const uint32_t world : {1u, 2u, 3u}) {
    for (const float temperature : {0.0f, 0.05f}) {
      SamplerRig rig(kVocab, world);
      SequenceStart start;
      start.sampling.temperature = temperature;
      start.sampling.logit_bias = {{7, 100.0f}, {33, 5.0f}};
      start.sampling.frequency_penalty = 2.0f;
      start.sampling.repetition_penalty = 2.0f;
      start.prompt_len = 1;
      start.penalty_ids = {7};
      rig.Begin(start);
      std::vector<float> logits(kVocab, 0.0f);
      logits[7] = 9.0f;
      logits[20] = 4.0f;
      const RowMask mask = MaskOf(kVocab, {20, 33});
      // 33 has 5, then 5 / 2 - 2; 20 has 4, then 4 / 2 - 2; and so on.
      CHECK(rig.Sample({{0, 1, logits, &mask}}).ids.at(0) == 33);
      CHECK(rig.Sample({{0, 2, logits, &mask}}).ids.at(0) == 20);
      CHECK(rig.Sample({{0, 3, logits, &mask}}).ids.at(0) == 33);
      // Without it, the bias decides.
      CHECK(rig.Sample({{0, 4, logits}}).ids.at(0) == 7);
    }
  }
}

TEST_CASE("A mask and ids that are held back leave what both allow",
          "[shard][compute][sampler][masks]") {
  constexpr uint32_t kVocab = 40;
  SamplerRig rig(kVocab, 2);
  SequenceStart start;
  start.sampling.min_tokens = 1;
  start.sampling.held_ids = {5};
  start.prompt_len = 3;
  rig.Begin(start);
  std::vector<float> logits(kVocab, 0.0f);
  logits[5] = 4.0f;
  logits[6] = 8.0f;
  const RowMask mask = MaskOf(kVocab, {5, 30});
  CHECK(rig.Sample({{0, 3, logits, &mask}}).ids.at(0) == 30);
  CHECK(rig.Sample({{0, 4, logits, &mask}}).ids.at(0) == 5);
  // Nothing is left: the row says so.
  SamplerRig other(kVocab, 2);
  other.Begin(start);
  const RowMask held = MaskOf(kVocab, {5});
  CHECK(other.Sample({{0, 3, logits, &held}}).invalid_rows == std::vector<uint32_t>{0});
}

TEST_CASE("Log-probabilities of a masked row are the model's own",
          "[shard][compute][sampler][masks]") {
  constexpr uint32_t kVocab = 203;
  for (const uint32_t world : {1u, 2u, 3u}) {
    for (SamplingParams params : Paths()) {
      params.logprobs = true;
      params.top_logprobs = 3;
      params.logit_bias = {{11, 2.0f}};
      SamplerRig rig(kVocab, world);
      rig.Begin(StartOf(0, params));
      const std::vector<float> logits = RandomLogits(kVocab, 3);
      const RowMask mask = MaskOf(kVocab, {2, 11, 100, 202});
      const StepResult result = rig.Sample({{0, 1, logits, &mask}});
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const auto log_of = [&](TokenId id) { return logits[id] - std::log(sum); };
      REQUIRE(result.logprobs.size() == 1);
      CHECK(result.logprobs[0].logprob == Approx(log_of(result.ids.at(0))).margin(1e-3));
      std::vector<TokenId> best(kVocab);
      for (TokenId id = 0; id < kVocab; ++id) best[id] = id;
      std::sort(best.begin(), best.end(),
                [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
      REQUIRE(result.logprobs[0].top.size() == 3);
      for (size_t i = 0; i < 3; ++i) {
        CHECK(result.logprobs[0].top[i].first == best[i]);
        CHECK(result.logprobs[0].top[i].second == Approx(log_of(best[i])).margin(1e-3));
      }
    }
  }
}

}  // namespace
}  // namespace weft::shard
