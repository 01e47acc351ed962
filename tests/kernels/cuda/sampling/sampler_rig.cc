#include "tests/kernels/cuda/sampling/sampler_rig.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/philox.h"

namespace weft::kernels::cuda::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Relative distance of a filter's mass (or min-p's weight) from its border within which the device
// may decide either way: its sums and exponentials are rounded differently from the reference's.
constexpr double kBorder = 1e-5;
// A step of float32, in which min-p compares weights: those of 1e-8 less than the best one's are
// equal to it, which counts when the least is the best.
constexpr double kStep = 1e-7;

}  // namespace

Result Run(const Batch& batch) {
  DeviceBatch device(batch);
  WEFT_CUDA_CHECK(Sample(device.params, nullptr));
  return device.Read();
}

namespace {

bool Precedes(const Token& a, const Token& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

bool HasPenalties(const SamplingRow& row) {
  return row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
}

}  // namespace

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
      if ((word >> id % 32 & 1) == 0) {
        x[id] = row.mask_penalty > 0 ? x[id] - row.mask_penalty : -kInfinity;
      }
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

namespace {

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

}  // namespace

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
    std::erase_if(tokens, [&](const Token& token) {
      return static_cast<float>(token.weight) < static_cast<float>(least);
    });
  }
  return tokens;
}

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

namespace {

uint32_t FilterAndDraw(const SamplingRow& row, const std::vector<Token>& tokens,
                       const Shift& shift) {
  return Draw(row, Filtered(row, tokens, shift));
}

}  // namespace

std::vector<Token> SortedTokens(const std::vector<float>& scores) {
  std::vector<Token> tokens;
  for (uint32_t id = 0; id < scores.size(); ++id) {
    if (scores[id] > -kInfinity) tokens.push_back({id, scores[id]});
  }
  std::sort(tokens.begin(), tokens.end(), Precedes);
  return tokens;
}

namespace {

// Whether a token can be drawn at all: kInvalidSampleBit says when not.
bool IsDistribution(const Batch& batch, size_t r) {
  const std::vector<float> scores = Adjusted(batch, r);
  for (const float score : scores) {
    if (!(score < kInfinity)) return false;
  }
  const SamplingRow& row = batch.rows[r];
  // Of the largest, the quotient too may be beyond float32.
  const std::vector<Token> tokens = SortedTokens(scores);
  return !tokens.empty() &&
         (row.temperature <= 0 || tokens[0].score / row.temperature > -kInfinity);
}

bool TokenIsRight(const Batch& batch, size_t r, uint32_t id) {
  const SamplingRow& row = batch.rows[r];
  std::vector<Token> tokens = SortedTokens(Adjusted(batch, r));
  if (row.temperature <= 0) return id == (tokens.empty() ? 0 : tokens[0].id);
  if (row.top_k > 0 && row.top_k < tokens.size()) tokens.resize(row.top_k);
  if (id == FilterAndDraw(row, tokens, {})) return true;
  for (double typical : {-kBorder, 0.0, kBorder}) {
    for (double top_p : {-kBorder, 0.0, kBorder}) {
      for (double min_p : {-kBorder, -kStep, 0.0, kStep, kBorder}) {
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
  // Of a row that is no distribution there are none, and nobody reads them.
  if (!IsDistribution(batch, r)) return;
  const std::vector<Token> tokens = SortedTokens({begin, begin + batch.vocabulary});
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

}  // namespace

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
    const uint32_t id = result.ids[r] & ~kInvalidSampleBit;
    REQUIRE(id < batch.vocabulary);
    if (IsDistribution(batch, r)) {
      CHECK(id == result.ids[r]);
      CHECK(TokenIsRight(batch, r, id));
    } else {
      CHECK(result.ids[r] == kInvalidSampleBit);
    }
    last[row.slot] = id;
    if (HasPenalties(row)) {
      uint16_t& count = counts[row.slot * batch.stride() + id];
      if ((count & kCountOutputMask) < kCountOutputMask) ++count;
    }
    if (row.logprobs != 0) CheckLogprobs(batch, r, result);
  }
  CHECK(result.last == last);
  CHECK(result.counts == counts);
}

namespace {

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

}  // namespace

void FillLogits(Batch* batch, size_t r, Shape shape, std::mt19937_64& random) {
  float* row = batch->logits.data() + r * batch->stride();
  const std::vector<float> normal = testing::RandomFloats(random, batch->vocabulary);
  for (uint32_t i = 0; i < batch->vocabulary; ++i) row[i] = LogitOf(shape, normal[i], random);
  if (shape == Shape::kHuge) row[random() % batch->vocabulary] = 1e4f;
}

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
  if (random() % 3 == 0) row.mask_penalty = 2;
  if (random() % 2 == 0) row.repetition_penalty = 1.3f;
  if (random() % 2 == 0) row.presence_penalty = 0.7f;
  if (random() % 2 == 0) row.frequency_penalty = -0.1f;
}

namespace {

template <typename T>
T Pick(std::initializer_list<T> values, std::mt19937_64& random) {
  return values.begin()[random() % values.size()];
}

}  // namespace

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

}  // namespace weft::kernels::cuda::testing
