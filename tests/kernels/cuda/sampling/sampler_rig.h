// A batch for the sampler's tests: random rows, the device's answer, and a reference that sorts,
// sums in double precision and draws with the same noise. For one thread.

#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/sampling/sampler.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

// Slots beyond the rows'.
inline constexpr uint32_t kSpareSlots = 2;

struct Batch {
  uint32_t vocabulary = 0;
  std::vector<SamplingRow> rows;
  std::vector<float> logits;
  std::vector<LogitBias> biases;
  std::vector<uint32_t> masks;
  std::vector<uint16_t> counts;
  uint32_t features = kSamplerAllFeatures;

  // Not the vocabulary, so that strides are told apart; multiples of four.
  uint64_t stride() const { return (uint64_t{vocabulary} + 3) / 4 * 4 + 4; }
  uint32_t mask_stride() const { return (vocabulary + 31) / 32 + 1; }
  uint32_t slots() const { return static_cast<uint32_t>(rows.size()) + kSpareSlots; }
};

struct Result {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> last;
  std::vector<uint16_t> counts;
  std::vector<float> logprobs;
  std::vector<uint32_t> top_ids;
  std::vector<float> top_logprobs;
};

// -- The device's side ---------------------------------------------------------------------------

struct DeviceBatch {
  explicit DeviceBatch(const Batch& batch)
      : logits(batch.logits),
        rows(batch.rows),
        biases(batch.biases),
        masks(batch.masks),
        counts(batch.counts),
        last(batch.slots()),
        ids(batch.rows.size()),
        logprobs(batch.rows.size()),
        top_ids(batch.rows.size() * kSamplerTopLogprobsMax),
        top_logprobs(batch.rows.size() * kSamplerTopLogprobsMax),
        workspace(SamplerWorkspaceBytes(static_cast<uint32_t>(batch.rows.size()), batch.vocabulary,
                                        batch.features)) {
    params.logits = logits.data();
    params.row_stride = batch.stride();
    params.rows = static_cast<uint32_t>(batch.rows.size());
    params.vocabulary = batch.vocabulary;
    params.features = batch.features;
    params.row_params = rows.data();
    params.biases = biases.data();
    params.masks = masks.data();
    params.mask_stride = batch.mask_stride();
    params.counts = counts.data();
    params.count_stride = batch.stride();
    params.last_sampled = last.data();
    params.out_ids = ids.data();
    params.out_logprobs = logprobs.data();
    params.out_top_ids = top_ids.data();
    params.out_top_logprobs = top_logprobs.data();
    params.workspace = workspace.data();
  }
  Result Read() const {
    return {ids.Host(),      last.Host(),    counts.Host(),
            logprobs.Host(), top_ids.Host(), top_logprobs.Host()};
  }

  DeviceArray<float> logits;
  DeviceArray<SamplingRow> rows;
  DeviceArray<LogitBias> biases;
  DeviceArray<uint32_t> masks;
  DeviceArray<uint16_t> counts;
  DeviceArray<uint32_t> last;
  DeviceArray<uint32_t> ids;
  DeviceArray<float> logprobs;
  DeviceArray<uint32_t> top_ids;
  DeviceArray<float> top_logprobs;
  DeviceArray<uint8_t> workspace;
  SamplerParams params;
};

Result Run(const Batch& batch);

// -- The reference -------------------------------------------------------------------------------

struct Token {
  uint32_t id;
  float score;
  float key = 0;
  double weight = 0;
};

// How far each filter's border is moved, relatively.
struct Shift {
  double typical = 0;
  double top_p = 0;
  double min_p = 0;
};

// A row's logits after bias, mask and penalties.
std::vector<float> Adjusted(const Batch& batch, size_t r);
// Best first, ties by id.
std::vector<Token> SortedTokens(const std::vector<float>& scores);
// The survivors of `tokens`, those of the row after top-k; sorted.
std::vector<Token> Filtered(const SamplingRow& row, std::vector<Token> tokens, const Shift& shift);
// `tokens` is sorted.
uint32_t Draw(const SamplingRow& row, const std::vector<Token>& tokens);
// Tokens, log-probabilities, counts and last samples of every row.
void CheckBatch(const Batch& batch, const Result& result);

// -- Data ----------------------------------------------------------------------------------------

enum class Shape { kWide, kNarrow, kEqual, kHuge, kTies, kMasked, kNothing };
inline constexpr int kShapes = 7;

void FillLogits(Batch* batch, size_t r, Shape shape, std::mt19937_64& random);
// Rows with parameters off, seeds and positions of their own, slots in reverse.
Batch MakeBatch(uint32_t vocabulary, uint32_t rows, std::mt19937_64& random);
// Bias, mask and penalties.
void AddAdjustments(Batch* batch, uint32_t r, std::mt19937_64& random);
// Rows of all kinds.
Batch MixedBatch(uint32_t vocabulary, uint32_t rows, std::mt19937_64& random);

}  // namespace weft::kernels::cuda::testing
