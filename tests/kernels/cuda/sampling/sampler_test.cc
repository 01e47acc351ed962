#include "kernels/cuda/sampling/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cuda/sampling/rank_targets.h"
#include "tests/kernels/cuda/sampling/sampler_rig.h"

namespace weft::kernels::cuda::testing {
namespace {

TEST_CASE("Sampler: rows of all kinds beside each other", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t vocabulary = GENERATE(1, 5, 1000, 4096, 4097, 32000, 49152, 128256);
  const uint32_t rows = GENERATE(1, 3, 64);
  CAPTURE(vocabulary, rows);
  const Batch batch = MixedBatch(vocabulary, rows, random);
  CheckBatch(batch, Run(batch));
}

struct Filter {
  uint32_t top_k;
  float typical_p;
  float top_p;
  float min_p;
};

TEST_CASE("Sampler: each filter on each shape of logits", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const auto filter = GENERATE(
      Filter{0, 1, 1, 0}, Filter{1, 1, 1, 0}, Filter{50, 1, 1, 0}, Filter{1000, 1, 1, 0},
      Filter{30000, 1, 1, 0}, Filter{99999, 1, 1, 0}, Filter{0, 1, 1e-6f, 0}, Filter{0, 1, 0.5f, 0},
      Filter{0, 1, 0.9f, 0}, Filter{0, 1, 0.999999f, 0}, Filter{0, 0.2f, 1, 0},
      Filter{0, 0.95f, 1, 0}, Filter{0, 1, 1, 1e-5f}, Filter{0, 1, 1, 0.1f}, Filter{50, 1, 0.9f, 0},
      Filter{1000, 0.9f, 0.9f, 0.01f}, Filter{0, 0.5f, 0.8f, 0.02f});
  const float temperature = GENERATE(1e-4f, 0.7f, 1.5f, 50.0f);
  Batch batch = MakeBatch(32000, kShapes, random);
  batch.features = kSamplerFilters;
  for (uint32_t r = 0; r < kShapes; ++r) {
    FillLogits(&batch, r, static_cast<Shape>(r), random);
    SamplingRow& row = batch.rows[r];
    row.temperature = temperature;
    row.top_k = filter.top_k;
    row.typical_p = filter.typical_p;
    row.top_p = filter.top_p;
    row.min_p = filter.min_p;
  }
  CheckBatch(batch, Run(batch));
}

// Gives the row a seed with which the last token kept, or the first left out if it were kept, wins:
// a draw says nothing about most other wrong sets.
void AimAtBorder(Batch* batch, uint32_t r) {
  SamplingRow& row = batch->rows[r];
  std::vector<Token> tokens = SortedTokens(Adjusted(*batch, r));
  const std::vector<Token> all = tokens;
  if (row.top_k > 0 && row.top_k < tokens.size()) tokens.resize(row.top_k);
  std::vector<Token> kept = Filtered(row, tokens, {});
  uint32_t aim = kept.back().id;
  // Typical-p leaves tokens out on both sides.
  if (row.typical_p == 1 && r % 2 == 0 && kept.size() < all.size()) {
    kept.push_back(all[kept.size()]);
    aim = kept.back().id;
  }
  for (int i = 0; i < 4000 && Draw(row, kept) != aim; ++i) ++row.seed;
}

TEST_CASE("Sampler: rows with NaN or infinity are reported, their neighbours drawn",
          "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t vocabulary = GENERATE(1, 1000, 4097, 128256);
  const uint32_t features = GENERATE(0u, uint32_t{kSamplerFilters}, kSamplerAllFeatures);
  const float bad = GENERATE(NAN, -NAN, INFINITY);
  CAPTURE(vocabulary, features, bad);
  Batch batch = MakeBatch(vocabulary, 24, random);
  batch.features = features;
  for (uint32_t r = 0; r < batch.rows.size(); ++r) {
    FillLogits(&batch, r, Shape::kWide, random);
    SamplingRow& row = batch.rows[r];
    row.temperature = r % 4 == 0 ? 0.0f : 0.9f;
    if (features != 0 && r % 4 >= 2) row.top_p = 0.9f;
    if (features != 0 && r % 4 == 3) row.typical_p = 0.5f;
    if (features == kSamplerAllFeatures) {
      row.logprobs = r % 2;
      row.repetition_penalty = r % 3 == 0 ? 1.2f : 1.0f;
    }
    float* const logits = batch.logits.data() + r * batch.stride();
    // A third of the rows as they are, in another one bad logit, in the last nothing else.
    if (r / 8 == 1) logits[random() % vocabulary] = bad;
    if (r / 8 == 2) std::fill(logits, logits + vocabulary, bad);
  }
  const Result result = Run(batch);
  CheckBatch(batch, result);
  for (uint32_t r = 0; r < batch.rows.size(); ++r) {
    CAPTURE(r);
    CHECK((result.ids[r] == kInvalidSampleBit) == (r >= 8));
  }
}

// log(sum of exp) of a row of logits.
double LogSumExp(const float* logits, uint32_t vocabulary) {
  const double best = *std::max_element(logits, logits + vocabulary);
  double sum = 0;
  for (uint32_t id = 0; id < vocabulary; ++id) sum += std::exp(logits[id] - best);
  return best + std::log(sum);
}

TEST_CASE("Sampler: log-probabilities and ranks of given tokens", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t vocabulary = GENERATE(1, 5, 1000, 4097, 128256);
  CAPTURE(vocabulary);
  constexpr uint32_t kRows = 36;
  Batch batch = MakeBatch(vocabulary, kRows, random);
  batch.features = kSamplerLogprobs;
  std::vector<uint32_t> targets(kRows);
  for (uint32_t r = 0; r < kRows; ++r) {
    constexpr Shape kNumbers[] = {Shape::kWide, Shape::kNarrow, Shape::kEqual, Shape::kTies};
    FillLogits(&batch, r, kNumbers[r % 4], random);
    batch.rows[r] = SamplingRow();
    batch.rows[r].logprobs = 1;
    batch.rows[r].top_logprobs = r % 3 * 10;
    targets[r] = static_cast<uint32_t>(random() % vocabulary);
  }
  batch.logits[7 * batch.stride() + vocabulary / 2] = NAN;
  DeviceBatch device(batch);
  const DeviceArray<uint32_t> given(targets);
  DeviceArray<uint32_t> ranks(kRows);
  device.params.targets = given.data();
  device.params.last_sampled = nullptr;
  REQUIRE(Sample(device.params, nullptr) == cudaSuccess);
  RankTargetsParams rank;
  rank.logits = device.params.logits;
  rank.row_stride = batch.stride();
  rank.rows = kRows;
  rank.vocabulary = vocabulary;
  rank.targets = given.data();
  rank.out_ranks = ranks.data();
  REQUIRE(RankTargets(rank, nullptr) == cudaSuccess);
  const Result result = device.Read();
  const std::vector<uint32_t> found = ranks.Host();
  for (uint32_t r = 0; r < kRows; ++r) {
    CAPTURE(r);
    CHECK(((result.ids[r] & kInvalidSampleBit) != 0) == (r == 7));
    if (r == 7) continue;
    const float* const logits = batch.logits.data() + r * batch.stride();
    const double sum = LogSumExp(logits, vocabulary);
    CHECK(result.logprobs[r] == Approx(logits[targets[r]] - sum).margin(1e-4));
    const std::vector<Token> sorted = SortedTokens(std::vector<float>(logits, logits + vocabulary));
    CHECK(sorted[found[r] - 1].id == targets[r]);
    for (uint32_t i = 0; i < std::min(batch.rows[r].top_logprobs, vocabulary); ++i) {
      CHECK(result.top_ids[r * kSamplerTopLogprobsMax + i] == sorted[i].id);
      CHECK(result.top_logprobs[r * kSamplerTopLogprobsMax + i] ==
            Approx(sorted[i].score - sum).margin(1e-4));
    }
  }
}

TEST_CASE("Sampler: the last token kept and the first left out", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const auto filter =
      GENERATE(Filter{20, 1, 1, 0}, Filter{0, 1, 0.5f, 0}, Filter{0, 1, 0.9f, 0},
               Filter{0, 1, 0.98f, 0}, Filter{0, 1, 0.9995f, 0}, Filter{0, 0.6f, 1, 0},
               Filter{0, 1, 1, 0.05f}, Filter{100, 1, 0.9f, 0}, Filter{100, 0.7f, 0.9f, 0},
               Filter{50, 0.9f, 0.9f, 0.05f}, Filter{0, 0.8f, 0.7f, 0.02f});
  const uint32_t vocabulary = GENERATE(60, 5000);
  const auto shape = GENERATE(Shape::kWide, Shape::kTies);
  Batch batch = MakeBatch(vocabulary, 16, random);
  for (uint32_t r = 0; r < batch.rows.size(); ++r) {
    FillLogits(&batch, r, shape, random);
    SamplingRow& row = batch.rows[r];
    row.temperature = r % 3 == 0 ? 0.7f : 1.0f;
    row.top_k = filter.top_k;
    row.typical_p = filter.typical_p;
    row.top_p = filter.top_p;
    row.min_p = filter.min_p;
    AimAtBorder(&batch, r);
  }
  CheckBatch(batch, Run(batch));
}

TEST_CASE("Sampler: a row alone gives what it gives in a batch", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const Batch batch = MixedBatch(32000, 16, random);
  const Result together = Run(batch);
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (batch.rows[r].slot == kNoSamplingRow) continue;
    Batch one = batch;
    one.rows = {batch.rows[r]};
    one.rows[0].slot = 0;
    const auto begin = batch.logits.begin() + static_cast<ptrdiff_t>(r * batch.stride());
    one.logits.assign(begin, begin + static_cast<ptrdiff_t>(batch.stride()));
    const auto counts =
        batch.counts.begin() + static_cast<ptrdiff_t>(batch.rows[r].slot * batch.stride());
    std::copy(counts, counts + static_cast<ptrdiff_t>(batch.stride()), one.counts.begin());
    const Result alone = Run(one);
    CAPTURE(r);
    CHECK(alone.ids[0] == together.ids[r]);
    if (batch.rows[r].logprobs == 0 || std::isnan(alone.logprobs[0])) continue;
    CHECK(alone.logprobs[0] == together.logprobs[r]);
    for (size_t i = 0; i < kSamplerTopLogprobsMax; ++i) {
      CHECK(alone.top_ids[i] == together.top_ids[r * kSamplerTopLogprobsMax + i]);
    }
  }
}

TEST_CASE("Sampler: a captured graph gives the same, again and again", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  Batch batch = MixedBatch(32000, 8, random);
  // In-place adjustments would add up.
  for (SamplingRow& row : batch.rows) {
    row.bias_count = 0;
    row.mask_row = kNoSamplingRow;
    row.repetition_penalty = 1;
    row.presence_penalty = row.frequency_penalty = 0;
  }
  DeviceBatch device(batch);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  WEFT_CUDA_CHECK(cudaStreamCreate(&stream));
  WEFT_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  WEFT_CUDA_CHECK(Sample(device.params, stream));
  WEFT_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  WEFT_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) {
    WEFT_CUDA_CHECK(cudaGraphLaunch(executable, stream));
    WEFT_CUDA_CHECK(cudaStreamSynchronize(stream));
    CheckBatch(batch, device.Read());
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("Sampler: counts of a new sequence", "[cuda][sampler]") {
  std::mt19937_64 random(Seed());
  const uint32_t vocabulary = GENERATE(1, 7, 32000);
  const uint32_t count = GENERATE(0, 1, 5000, 70000);
  std::vector<uint32_t> ids(count);
  for (uint32_t& id : ids) id = static_cast<uint32_t>(random() % std::min(vocabulary, 900u));
  const uint32_t prompt_count = count / 3;
  std::vector<uint16_t> reference(vocabulary + 2, 0xffff);
  std::fill_n(reference.begin(), vocabulary, uint16_t{0});
  for (uint32_t i = 0; i < count; ++i) {
    uint16_t& seen = reference[ids[i]];
    if (i < prompt_count) {
      seen |= kCountPromptBit;
    } else if ((seen & kCountOutputMask) < kCountOutputMask) {
      ++seen;
    }
  }
  DeviceArray<uint16_t> counts(vocabulary + 2);
  DeviceArray<uint32_t> device_ids(ids);
  WEFT_CUDA_CHECK(
      CountTokens({counts.data(), vocabulary, device_ids.data(), count, prompt_count}, nullptr));
  CHECK(counts.Host() == reference);
}

}  // namespace
}  // namespace weft::kernels::cuda::testing
