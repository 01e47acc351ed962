// What the sampler leaves out of its work must not show: noise of tokens that cannot win, tokens
// that no list needs, and the ends of kernels that the next ones overlap.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <memory>

#include "tests/kernels/cuda/graph.h"
#include "tests/kernels/cuda/sampling/sampler_rig.h"

namespace weft::kernels::cuda::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Logits that a bound of the noise could get wrong.
enum class Odd {
  kFlat,
  kOneOnly,
  kNans,
  kSteps,
  kSignedZeros,
  kGiant,
  kTiny,
  kPeaks,
  kLastOnly,
  kNothingButNans,
};
constexpr uint32_t kOdds = 10;

float OddLogit(Odd odd, float normal, std::mt19937_64& random) {
  switch (odd) {
    case Odd::kFlat:
      return 3.25f;
    case Odd::kNans:
      return random() % 3 == 0 ? kNan : 2 * normal;
    case Odd::kSteps:
      return static_cast<float>(random() % 4) * 5 - 10;
    case Odd::kSignedZeros:
      return random() % 2 == 0 ? 0.0f : -0.0f;
    case Odd::kGiant:
      return 1e36f * normal;
    case Odd::kTiny:
      return 1e-36f * normal;
    case Odd::kPeaks:
      return normal + (random() % 500 == 0 ? 18.0f : 0.0f);
    case Odd::kNothingButNans:
      return kNan;
    case Odd::kOneOnly:
    case Odd::kLastOnly:
      break;
  }
  return -kInfinity;
}

Batch OddBatch(uint32_t vocabulary, std::mt19937_64& random) {
  Batch batch = MakeBatch(vocabulary, kOdds, random);
  for (uint32_t r = 0; r < kOdds; ++r) {
    float* row = batch.logits.data() + r * batch.stride();
    const std::vector<float> normal = RandomFloats(random, vocabulary);
    const Odd odd = static_cast<Odd>(r);
    for (uint32_t i = 0; i < vocabulary; ++i) row[i] = OddLogit(odd, normal[i], random);
    if (odd == Odd::kOneOnly) row[random() % vocabulary] = -7;
    if (odd == Odd::kLastOnly) row[vocabulary - 1] = 1e-3f;
  }
  return batch;
}

TEST_CASE("Sampler: noise left out decides nothing", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t vocabulary = GENERATE(1, 7, 4099, 33333);
  const float temperature = GENERATE(1e-30f, 1e-6f, 0.05f, 0.7f, 1.0f, 3.0f, 1e3f, 1e30f);
  CAPTURE(vocabulary, temperature);
  Batch batch = OddBatch(vocabulary, random);
  batch.features = 0;
  for (SamplingRow& row : batch.rows) row.temperature = temperature;
  // Several draws of each row.
  for (int i = 0; i < 4; ++i) {
    for (SamplingRow& row : batch.rows) ++row.position;
    CheckBatch(batch, Run(batch));
  }
}

TEST_CASE("Sampler: filters on odd logits", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t vocabulary = GENERATE(7, 33333);
  const float temperature = GENERATE(0.05f, 1.0f, 100.0f);
  Batch batch = OddBatch(vocabulary, random);
  batch.features = kSamplerFilters;
  for (SamplingRow& row : batch.rows) {
    row.temperature = temperature;
    row.top_k = random() % 2 == 0 ? 40 : 0;
    row.top_p = random() % 2 == 0 ? 0.8f : 1.0f;
    row.min_p = random() % 2 == 0 ? 0.02f : 0.0f;
  }
  // Scores whose differences or quotients are beyond float32.
  batch.rows[static_cast<uint32_t>(Odd::kGiant)].slot = kNoSamplingRow;
  CheckBatch(batch, Run(batch));
}

// All that counts sits in a few threads' quads, which hold ids 16,384 apart.
TEST_CASE("Sampler: the best tokens side by side in few threads", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t top_k = GENERATE(1, 7, 60, 256, 257, 600);
  Batch batch = MakeBatch(200000, 4, random);
  batch.features = kSamplerFilters;
  for (uint32_t r = 0; r < batch.rows.size(); ++r) {
    FillLogits(&batch, r, Shape::kNarrow, random);
    float* row = batch.logits.data() + r * batch.stride();
    for (uint32_t i = 0; i < batch.vocabulary; ++i) {
      if (i % 16384 / 4 < 1 + r * 5) row[i] += 4;
    }
    batch.rows[r].temperature = r % 2 == 0 ? 1.0f : 20.0f;
    batch.rows[r].top_k = top_k;
    batch.rows[r].top_p = r == 2 ? 0.9f : 1.0f;
  }
  CheckBatch(batch, Run(batch));
}

TEST_CASE("Sampler: lists about as long as a block", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const auto shape = GENERATE(Shape::kWide, Shape::kTies);
  Batch batch = MakeBatch(32000, 32, random);
  batch.features = kSamplerFilters;
  for (uint32_t r = 0; r < batch.rows.size(); ++r) {
    FillLogits(&batch, r, shape, random);
    SamplingRow& row = batch.rows[r];
    // Hot enough for every token kept to have a chance.
    row.temperature = 50;
    row.top_k = r < 4 ? 30 + r : 1000 + r;
    row.top_p = r % 3 == 0 ? 0.95f : 1.0f;
    row.min_p = r % 5 == 0 ? 0.9f : 0.0f;
  }
  CheckBatch(batch, Run(batch));
}

TEST_CASE("Sampler: calls that overlap, in one workspace", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const bool filtered = GENERATE(false, true);
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(MixedBatch(32000, 9, random));
    batches.back().features = filtered ? kSamplerAllFeatures : 0;
    for (SamplingRow& row : batches.back().rows) {
      if (filtered) continue;
      row = {.seed = row.seed,
             .position = row.position,
             .temperature = row.temperature,
             .slot = row.slot};
    }
  }
  std::vector<std::unique_ptr<DeviceBatch>> devices;
  for (const Batch& batch : batches) devices.push_back(std::make_unique<DeviceBatch>(batch));
  Graph graph([&](cudaStream_t stream) {
    for (const auto& device : devices) {
      SamplerParams params = device->params;
      params.workspace = devices[0]->params.workspace;
      params.dependent = device != devices[0];
      WEFT_CUDA_CHECK(Sample(params, stream));
    }
  });
  // Once: adjustments would add up.
  graph.Replay();
  for (size_t i = 0; i < batches.size(); ++i) CheckBatch(batches[i], devices[i]->Read());
}

}  // namespace
}  // namespace weft::kernels::cuda::testing
