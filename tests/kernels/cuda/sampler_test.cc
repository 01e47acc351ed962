#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/philox.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Relative distance of a filter's mass (or min-p's weight) from its border within which the device
// may decide either way: its sums and exponentials are rounded differently from the reference's.
constexpr double kBorder = 1e-5;
constexpr uint32_t kSpareSlots = 2;

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

// --- the device's side ---

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

Result Run(const Batch& batch) {
  DeviceBatch device(batch);
  WEFT_CUDA_CHECK(Sample(device.params, nullptr));
  return device.Read();
}

// --- the reference ---

struct Token {
  uint32_t id;
  float score;
  float key = 0;
  double weight = 0;
};

bool Precedes(const Token& a, const Token& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

bool HasPenalties(const SamplingRow& row) {
  return row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
}

std::vector<float> Adjusted(const Batch& batch, size_t r) {
  const SamplingRow& row = batch.rows[r];
  const float* begin = batch.logits.data() + r * batch.stride();
  std::vector<float> x(begin, begin + batch.vocabulary);
  for (uint32_t i = 0; i < row.bias_count; ++i) {
    const LogitBias& bias = batch.biases[row.bias_begin + i];
    if (bias.id < batch.vocabulary) x[bias.id] += bias.bias;
  }
  for (uint32_t id = 0; id < batch.vocabulary; ++id) {
    if (row.mask_row != kNoSamplingRow) {
      const uint32_t word = batch.masks[row.mask_row * batch.mask_stride() + id / 32];
      if ((word >> id % 32 & 1) == 0) x[id] = -kInfinity;
    }
    if (!HasPenalties(row)) continue;
    const uint16_t count = batch.counts[row.slot * batch.stride() + id];
    if (count == 0) continue;
    const float repetition = row.repetition_penalty;
    if (repetition != 1) x[id] = x[id] > 0 ? x[id] / repetition : x[id] * repetition;
    if (const int output = count & kCountOutputMask; output > 0) {
      x[id] -= row.frequency_penalty * static_cast<float>(output);
      x[id] -= row.presence_penalty;
    }
  }
  return x;
}

// How far each filter's border is moved, relatively.
struct Shift {
  double typical = 0;
  double top_p = 0;
  double min_p = 0;
};

double SetWeights(float temperature, std::vector<Token>* tokens) {
  float best = -kInfinity;
  for (const Token& token : *tokens) best = std::max(best, token.score);
  double total = 0;
  for (Token& token : *tokens) {
    token.weight = std::exp(static_cast<double>((token.score - best) / temperature));
    total += token.weight;
  }
  return total;
}

// Keeps each token before which the mass has not reached the target.
void TakeMass(double target, std::vector<Token>* tokens) {
  double below = 0;
  size_t kept = 0;
  while (kept < tokens->size() && (kept == 0 || below < target)) below += (*tokens)[kept++].weight;
  tokens->resize(kept);
}

void KeepTypical(const SamplingRow& row, double mass, std::vector<Token>* tokens) {
  const double total = SetWeights(row.temperature, tokens);
  const float best = tokens->front().score;
  const auto log_total = static_cast<float>(std::log(total));
  double entropy = 0;
  for (Token& token : *tokens) {
    token.key = (token.score - best) / row.temperature - log_total;
    if (token.weight > 0) entropy -= token.weight / total * token.key;
  }
  for (Token& token : *tokens) token.key = std::abs(-token.key - static_cast<float>(entropy));
  std::sort(tokens->begin(), tokens->end(), [](const Token& a, const Token& b) {
    return a.key != b.key ? a.key < b.key : a.id < b.id;
  });
  TakeMass(mass * total, tokens);
  std::sort(tokens->begin(), tokens->end(), Precedes);
}

// The survivors of `tokens`, those of the row after top-k; sorted.
std::vector<Token> Filtered(const SamplingRow& row, std::vector<Token> tokens, const Shift& shift) {
  if (tokens.empty()) return tokens;
  if (row.typical_p < 1) KeepTypical(row, row.typical_p * (1 + shift.typical), &tokens);
  if (row.top_p < 1) {
    const double total = SetWeights(row.temperature, &tokens);
    TakeMass(row.top_p * (1 + shift.top_p) * total, &tokens);
  }
  if (row.min_p > 0) {
    SetWeights(row.temperature, &tokens);
    const double least = row.min_p * (1 + shift.min_p);
    std::erase_if(tokens, [&](const Token& token) { return token.weight < least; });
  }
  return tokens;
}

// `tokens` is sorted.
uint32_t Draw(const SamplingRow& row, const std::vector<Token>& tokens) {
  std::optional<Token> winner;
  const float top = tokens.empty() ? 0 : tokens.front().score / row.temperature;
  for (const Token& token : tokens) {
    const float scaled = token.score / row.temperature;
    // Noise lies in [-2.9, 16.7].
    if (scaled + 16.7f < top - 2.9f) break;
    const Token drawn{token.id, scaled + TokenNoise(row.seed, row.position, token.id)};
    if (drawn.score > -kInfinity && (!winner || Precedes(drawn, *winner))) winner = drawn;
  }
  return winner ? winner->id : 0;
}

uint32_t FilterAndDraw(const SamplingRow& row, const std::vector<Token>& tokens,
                       const Shift& shift) {
  return Draw(row, Filtered(row, tokens, shift));
}

std::vector<Token> SortedTokens(const std::vector<float>& scores) {
  std::vector<Token> tokens;
  for (uint32_t id = 0; id < scores.size(); ++id) {
    if (scores[id] > -kInfinity) tokens.push_back({id, scores[id]});
  }
  std::sort(tokens.begin(), tokens.end(), Precedes);
  return tokens;
}

bool TokenIsRight(const Batch& batch, size_t r, uint32_t id) {
  const SamplingRow& row = batch.rows[r];
  std::vector<Token> tokens = SortedTokens(Adjusted(batch, r));
  if (row.temperature <= 0) return id == (tokens.empty() ? 0 : tokens[0].id);
  if (row.top_k > 0 && row.top_k < tokens.size()) tokens.resize(row.top_k);
  if (id == FilterAndDraw(row, tokens, {})) return true;
  for (double typical : {-kBorder, 0.0, kBorder}) {
    for (double top_p : {-kBorder, 0.0, kBorder}) {
      for (double min_p : {-kBorder, 0.0, kBorder}) {
        if (id == FilterAndDraw(row, tokens, {typical, top_p, min_p})) return true;
      }
    }
  }
  return false;
}

// 2e-5: float32 sums and logits of up to a few tens; large logits round coarser by themselves.
bool Near(float out, double reference) {
  return std::abs(out - reference) <= 2e-5 * std::max(1.0, std::abs(reference));
}

void CheckLogprobs(const Batch& batch, size_t r, const Result& result) {
  const SamplingRow& row = batch.rows[r];
  const float* begin = batch.logits.data() + r * batch.stride();
  const std::vector<Token> tokens = SortedTokens({begin, begin + batch.vocabulary});
  if (tokens.empty()) return;
  double sum = 0;
  for (const Token& token : tokens) {
    sum += std::exp(static_cast<double>(token.score) - tokens[0].score);
  }
  const double log_sum_exp = tokens[0].score + std::log(sum);
  const double reference = begin[result.ids[r]] - log_sum_exp;
  CHECK((result.logprobs[r] == reference || Near(result.logprobs[r], reference)));
  const uint32_t top = std::min(row.top_logprobs, batch.vocabulary);
  for (uint32_t i = 0; i < kSamplerTopLogprobsMax; ++i) {
    const uint32_t id = result.top_ids[r * kSamplerTopLogprobsMax + i];
    const float logprob = result.top_logprobs[r * kSamplerTopLogprobsMax + i];
    const bool there = i < top && i < tokens.size();
    CHECK(id == (there ? tokens[i].id : kNoSampledToken));
    CHECK((there ? Near(logprob, tokens[i].score - log_sum_exp) : logprob == -kInfinity));
  }
}

void CheckBatch(const Batch& batch, const Result& result) {
  std::vector<uint16_t> counts = batch.counts;
  std::vector<uint32_t> last(batch.slots(), 0xffffffffu);
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const SamplingRow& row = batch.rows[r];
    CAPTURE(r, row.temperature, row.top_k, row.top_p, row.min_p, row.typical_p, row.bias_count,
            row.repetition_penalty, row.mask_row, row.seed, row.position, result.ids[r]);
    if (row.slot == kNoSamplingRow) {
      CHECK(result.ids[r] == 0xffffffffu);
      continue;
    }
    REQUIRE(result.ids[r] < batch.vocabulary);
    CHECK(TokenIsRight(batch, r, result.ids[r]));
    last[row.slot] = result.ids[r];
    if (HasPenalties(row)) {
      uint16_t& count = counts[row.slot * batch.stride() + result.ids[r]];
      if ((count & kCountOutputMask) < kCountOutputMask) ++count;
    }
    if (row.logprobs != 0) CheckLogprobs(batch, r, result);
  }
  CHECK(result.last == last);
  CHECK(result.counts == counts);
}

// --- data ---

enum class Shape { kWide, kNarrow, kEqual, kHuge, kTies, kMasked, kNothing };
constexpr int kShapes = 7;

float LogitOf(Shape shape, float normal, std::mt19937_64& random) {
  switch (shape) {
    case Shape::kWide:
    case Shape::kHuge:
      return 3 * normal;
    case Shape::kNarrow:
      return 100 + 0.5f * normal;
    case Shape::kEqual:
      return -2.5f;
    case Shape::kTies:
      return std::round(4 * normal) / 2;
    case Shape::kMasked:
      return random() % 4 == 0 ? 2 * normal : -kInfinity;
    case Shape::kNothing:
      break;
  }
  return -kInfinity;
}

void FillLogits(Batch* batch, size_t r, Shape shape, std::mt19937_64& random) {
  float* row = batch->logits.data() + r * batch->stride();
  const std::vector<float> normal = testing::RandomFloats(random, batch->vocabulary);
  for (uint32_t i = 0; i < batch->vocabulary; ++i) row[i] = LogitOf(shape, normal[i], random);
  if (shape == Shape::kHuge) row[random() % batch->vocabulary] = 1e4f;
}

// Rows with parameters off, seeds and positions of their own, slots in reverse.
Batch MakeBatch(uint32_t vocabulary, uint32_t rows, std::mt19937_64& random) {
  Batch batch;
  batch.vocabulary = vocabulary;
  batch.rows.resize(rows);
  // Padding would win if it were looked at.
  batch.logits.assign(rows * batch.stride(), 1e9f);
  for (uint32_t r = 0; r < rows; ++r) {
    batch.rows[r].seed = random();
    batch.rows[r].position = random() % 4 == 0 ? random() : random() % 10000;
    batch.rows[r].slot = rows - 1 - r + kSpareSlots;
  }
  batch.counts.resize(batch.slots() * batch.stride());
  for (uint16_t& count : batch.counts) {
    const uint64_t dice = random() % 64;
    if (dice < 6) count = static_cast<uint16_t>(dice % 4 | (dice % 2 == 0 ? kCountPromptBit : 0));
    if (dice == 6) count = kCountOutputMask | kCountPromptBit;
  }
  batch.masks.resize(rows * batch.mask_stride());
  for (uint32_t& word : batch.masks) word = static_cast<uint32_t>(random() | random());
  batch.biases.push_back({0, 1e9f});  // of no row
  return batch;
}

void AddAdjustments(Batch* batch, uint32_t r, std::mt19937_64& random) {
  SamplingRow& row = batch->rows[r];
  if (random() % 2 == 0) {
    row.bias_begin = static_cast<uint32_t>(batch->biases.size());
    row.bias_count = 1 + random() % 300;
    for (uint32_t i = 0; i < row.bias_count; ++i) {
      // Some ids come twice, some are out of range.
      const auto id = static_cast<uint32_t>(random() % (uint64_t{batch->vocabulary} + 3));
      const float bias = random() % 5 == 0 ? -kInfinity : static_cast<float>(random() % 200) / 10;
      batch->biases.push_back({i % 7 == 6 ? batch->biases.back().id : id, bias});
    }
  }
  if (random() % 3 == 0) row.mask_row = r;
  if (random() % 2 == 0) row.repetition_penalty = 1.3f;
  if (random() % 2 == 0) row.presence_penalty = 0.7f;
  if (random() % 2 == 0) row.frequency_penalty = -0.1f;
}

template <typename T>
T Pick(std::initializer_list<T> values, std::mt19937_64& random) {
  return values.begin()[random() % values.size()];
}

Batch MixedBatch(uint32_t vocabulary, uint32_t rows, std::mt19937_64& random) {
  Batch batch = MakeBatch(vocabulary, rows, random);
  for (uint32_t r = 0; r < rows; ++r) {
    FillLogits(&batch, r, static_cast<Shape>(random() % kShapes), random);
    SamplingRow& row = batch.rows[r];
    row.temperature = Pick({0.0f, 1e-4f, 0.3f, 0.7f, 1.0f, 1.0f, 2.0f, 100.0f}, random);
    row.top_k = Pick({0u, 0u, 0u, 1u, 50u, 50u, 1000u, vocabulary, vocabulary + 7}, random);
    row.top_p = Pick({1.0f, 1.0f, 1e-6f, 0.5f, 0.9f, 0.999999f}, random);
    row.min_p = Pick({0.0f, 0.0f, 0.0f, 1e-4f, 0.05f, 1.0f}, random);
    row.typical_p = Pick({1.0f, 1.0f, 1.0f, 0.2f, 0.95f}, random);
    if (random() % 3 == 0) AddAdjustments(&batch, r, random);
    row.logprobs = random() % 3 == 0;
    row.top_logprobs = static_cast<uint32_t>(random() % (kSamplerTopLogprobsMax + 1));
    if (rows > 3 && random() % 16 == 0) row.slot = kNoSamplingRow;
  }
  return batch;
}

// --- tests ---

TEST_CASE("Sampler: rows of all kinds beside each other", "[cuda][sampler]") {
  std::mt19937_64 random(testing::Seed());
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
  std::mt19937_64 random(testing::Seed());
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

TEST_CASE("Sampler: the last token kept and the first left out", "[cuda][sampler]") {
  std::mt19937_64 random(testing::Seed());
  const auto filter = GENERATE(Filter{20, 1, 1, 0}, Filter{0, 1, 0.5f, 0}, Filter{0, 1, 0.9f, 0},
                               Filter{0, 0.6f, 1, 0}, Filter{0, 1, 1, 0.05f},
                               Filter{100, 1, 0.9f, 0}, Filter{100, 0.7f, 0.9f, 0},
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
  std::mt19937_64 random(testing::Seed());
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
  std::mt19937_64 random(testing::Seed());
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
  std::mt19937_64 random(testing::Seed());
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

struct TimeCase {
  const char* name;
  float temperature;
  Filter filter;
};

TEST_CASE("Sampler: time", "[cuda][sampler][time]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape = GENERATE(
      TimeCase{"greedy", 0, {0, 1, 1, 0}}, TimeCase{"temperature", 0.8f, {0, 1, 1, 0}},
      TimeCase{"top-k 50, top-p 0.9", 0.8f, {50, 1, 0.9f, 0}},
      TimeCase{"top-p 0.9", 0.5f, {0, 1, 0.9f, 0}}, TimeCase{"min-p 0.05", 0.8f, {0, 1, 1, 0.05f}},
      TimeCase{"typical 0.9 (whole row)", 0.8f, {0, 0.9f, 1, 0}});
  const uint32_t rows = GENERATE(1, 64);
  Batch batch = MakeBatch(128256, rows, random);
  const bool filtered = shape.filter.top_k > 0 || shape.filter.typical_p < 1 ||
                        shape.filter.top_p < 1 || shape.filter.min_p > 0;
  batch.features = filtered ? uint32_t{kSamplerFilters} : 0;
  for (uint32_t r = 0; r < rows; ++r) {
    FillLogits(&batch, r, Shape::kWide, random);
    batch.rows[r].temperature = shape.temperature;
    batch.rows[r].top_k = shape.filter.top_k;
    batch.rows[r].typical_p = shape.filter.typical_p;
    batch.rows[r].top_p = shape.filter.top_p;
    batch.rows[r].min_p = shape.filter.min_p;
  }
  DeviceBatch device(batch);
  const double us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(Sample(device.params, stream)); });
  testing::Report(std::string("sample: ") + shape.name, std::to_string(rows) + " x 128256", us,
                  4.0 * rows * batch.vocabulary);
}

}  // namespace
}  // namespace weft::kernels::cuda
