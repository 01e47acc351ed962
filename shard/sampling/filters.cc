#include "shard/sampling/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace weft::shard {
namespace {

using kernels::cpu::Kernels;
using Ranked = FilterScratch::Ranked;

bool KeptBefore(const Ranked& a, const Ranked& b) {
  return a.key != b.key ? a.key < b.key : a.candidate.id < b.candidate.id;
}

// Lists longer than this are cut into buckets of keys before anything is sorted.
constexpr size_t kSortMax = 1024;
constexpr size_t kBuckets = 1024;

// Appends to `out` the shortest prefix of `ranked`, in KeptBefore order, whose mass reaches
// `target` when `below` lies before it; at least one token when `out` is empty. Sorts `ranked`.
void TakeSorted(std::vector<Ranked>& ranked, double below, double target,
                std::vector<Candidate>* out) {
  std::sort(ranked.begin(), ranked.end(), KeptBefore);
  for (const Ranked& item : ranked) {
    // A token stays when the mass before it has not reached the target.
    if (below >= target && !out->empty()) return;
    out->push_back(item.candidate);
    below += item.weight;
  }
}

// Replaces the candidates by the first of scratch->ranked, in KeptBefore order, whose mass reaches
// `target`; at least one. O(n): only the bucket in which the mass is reached is sorted.
void TakeMass(FilterScratch* scratch, double target, std::vector<Candidate>* candidates) {
  std::vector<Ranked>& ranked = scratch->ranked;
  candidates->clear();
  if (ranked.size() <= kSortMax) return TakeSorted(ranked, 0, target, candidates);

  float low = ranked[0].key;
  float high = ranked[0].key;
  for (const Ranked& item : ranked) {
    low = std::min(low, item.key);
    high = std::max(high, item.key);
  }
  const float scale = high > low ? (kBuckets - 1) / (high - low) : 0.0f;
  // Monotone in the key, so buckets are in KeptBefore order.
  auto bucket_of = [low, scale](const Ranked& item) {
    const float at = (item.key - low) * scale;
    // Also the bucket of what is no number, as infinity less infinity.
    return at < kBuckets - 1 ? static_cast<size_t>(at) : kBuckets - 1;
  };
  std::array<double, kBuckets> masses{};
  for (const Ranked& item : ranked) masses[bucket_of(item)] += item.weight;
  double below = 0;
  size_t edge = 0;
  while (edge + 1 < kBuckets && below + masses[edge] < target) below += masses[edge++];

  scratch->edge.clear();
  for (const Ranked& item : ranked) {
    const size_t bucket = bucket_of(item);
    if (bucket < edge) candidates->push_back(item.candidate);
    if (bucket == edge) scratch->edge.push_back(item);
  }
  TakeSorted(scratch->edge, below, target, candidates);
}

float BestScore(const std::vector<Candidate>& candidates) {
  float best = -std::numeric_limits<float>::infinity();
  for (const Candidate& candidate : candidates) best = std::max(best, candidate.score);
  return best;
}

// values[i] = exp((score i - best) / temperature).
void Weights(const Kernels& kernels, float temperature, const std::vector<Candidate>& candidates,
             std::vector<float>* values) {
  const float best = BestScore(candidates);
  values->resize(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    (*values)[i] = (candidates[i].score - best) / temperature;
  }
  kernels.exp(values->data(), static_cast<int64_t>(values->size()), values->data());
}

// Sets `out` to tokens that include every survivor of top-p (and of min-p after it): those close
// enough to the best score, usually a small part. `*total` becomes the weight of all tokens.
void SelectLikely(const Kernels& kernels, const float* scores, int64_t count, float temperature,
                  float top_p, float min_p, std::vector<Candidate>* out, double* total) {
  const float best = kernels.max(scores, count);
  *total = kernels.exp_sum(scores, count, best, temperature, nullptr);
  // Distances from the best score, in temperatures, that usually, nearly always and always suffice.
  const float everything = std::numeric_limits<float>::infinity();
  for (const float distance : {7.0f, 9.0f, 11.0f, 14.0f, everything}) {
    const float above = best - distance * temperature;
    out->clear();
    double mass = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (!(scores[i] > above)) continue;
      out->push_back(Candidate{static_cast<TokenId>(i), scores[i]});
      if (top_p < 1.0f) mass += std::exp((scores[i] - best) / temperature);
    }
    // A little more than wanted, against the rounding of the sums.
    const bool top_p_inside = mass >= static_cast<double>(top_p) * *total * 1.00001;
    const bool min_p_inside = std::exp(-distance) < min_p * 0.999f;
    if (top_p < 1.0f ? top_p_inside : min_p_inside) return;
  }
}

// Keeps the tokens whose information content is closest to the entropy, until their mass reaches
// `mass`.
void KeepTypical(const Kernels& kernels, float temperature, float mass, FilterScratch* scratch,
                 std::vector<Candidate>* candidates) {
  Weights(kernels, temperature, *candidates, &scratch->values);
  const std::vector<float>& weights = scratch->values;
  double total = 0;
  for (const float weight : weights) total += weight;
  const float best = BestScore(*candidates);
  const auto log_total = static_cast<float>(std::log(total));
  auto log_probability = [&](size_t i) {
    return ((*candidates)[i].score - best) / temperature - log_total;
  };
  double entropy = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) entropy -= weights[i] / total * log_probability(i);
  }
  scratch->ranked.clear();
  for (size_t i = 0; i < weights.size(); ++i) {
    const float key = std::abs(-log_probability(i) - static_cast<float>(entropy));
    scratch->ranked.push_back(Ranked{key, weights[i], (*candidates)[i]});
  }
  TakeMass(scratch, static_cast<double>(mass) * total, candidates);
}

// Keeps the most likely tokens until their mass reaches `mass` of `total`.
void KeepTopP(const Kernels& kernels, float temperature, float mass, double total,
              FilterScratch* scratch, std::vector<Candidate>* candidates) {
  Weights(kernels, temperature, *candidates, &scratch->values);
  scratch->ranked.clear();
  double sum = 0;
  for (size_t i = 0; i < candidates->size(); ++i) {
    const float weight = scratch->values[i];
    sum += weight;
    scratch->ranked.push_back(Ranked{-(*candidates)[i].score, weight, (*candidates)[i]});
  }
  if (total == 0) total = sum;
  TakeMass(scratch, static_cast<double>(mass) * total, candidates);
}

// Keeps tokens with at least `share` of the best token's probability.
void KeepMinP(const Kernels& kernels, float temperature, float share, FilterScratch* scratch,
              std::vector<Candidate>* candidates) {
  Weights(kernels, temperature, *candidates, &scratch->values);
  size_t kept = 0;
  for (size_t i = 0; i < candidates->size(); ++i) {
    if (scratch->values[i] >= share) (*candidates)[kept++] = (*candidates)[i];
  }
  candidates->resize(kept);
}

}  // namespace

void FilterScores(const Kernels& kernels, const SamplingParams& params, const float* scores,
                  int64_t count, FilterScratch* scratch, std::vector<Candidate>* candidates) {
  double total = 0;
  if (params.top_k > 0 && params.top_k < count) {
    candidates->resize(params.top_k);
    const int64_t found = kernels.top_n(scores, count, 0, params.top_k, candidates->data());
    candidates->resize(static_cast<size_t>(found));
  } else if (params.typical_p < 1) {
    candidates->clear();
    for (int64_t i = 0; i < count; ++i) {
      if (scores[i] > -std::numeric_limits<float>::infinity()) {
        candidates->push_back(Candidate{static_cast<TokenId>(i), scores[i]});
      }
    }
  } else {
    SelectLikely(kernels, scores, count, params.temperature, params.top_p, params.min_p, candidates,
                 &total);
  }
  FilterCandidates(kernels, params, total, scratch, candidates);
}

void FilterCandidates(const Kernels& kernels, const SamplingParams& params, double total,
                      FilterScratch* scratch, std::vector<Candidate>* candidates) {
  if (candidates->empty()) return;
  const float temperature = params.temperature;
  if (params.typical_p < 1) {
    KeepTypical(kernels, temperature, params.typical_p, scratch, candidates);
  }
  if (params.top_p < 1) {
    KeepTopP(kernels, temperature, params.top_p, total, scratch, candidates);
  }
  if (params.min_p > 0) KeepMinP(kernels, temperature, params.min_p, scratch, candidates);
}

}  // namespace weft::shard
