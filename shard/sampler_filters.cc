#include "shard/sampler_filters.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::shard {
namespace {

using kernels::cpu::Kernels;
using Ranked = FilterScratch::Ranked;

bool KeptBefore(const Ranked& a, const Ranked& b) {
  return a.key != b.key ? a.key < b.key : a.candidate.id < b.candidate.id;
}

double Mass(const Ranked* begin, const Ranked* end) {
  double mass = 0;
  for (const Ranked* item = begin; item != end; ++item) mass += item->weight;
  return mass;
}

// Moves the shortest prefix, in KeptBefore order, whose mass reaches `target` to the front and
// returns its length, at least 1. A selection that looks at masses instead of counts: O(n).
size_t SelectMass(std::vector<Ranked>& ranked, double target) {
  constexpr size_t kSortBelow = 128;
  size_t low = 0;
  size_t high = ranked.size();
  double below = 0;
  while (high - low > kSortBelow) {
    const size_t middle = low + (high - low) / 2;
    Ranked* const data = ranked.data();
    std::nth_element(data + low, data + middle, data + high, KeptBefore);
    const double mass = Mass(data + low, data + middle);
    if (below + mass >= target) {
      high = middle;
    } else {
      below += mass;
      low = middle;
    }
  }
  std::sort(ranked.data() + low, ranked.data() + high, KeptBefore);
  // A token stays when the mass before it has not reached the target.
  size_t kept = low;
  while (kept < high && below < target) below += ranked[kept++].weight;
  return std::max<size_t>(kept, 1);
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

// Replaces the candidates by the first `count` of scratch->ranked.
void TakeRanked(const FilterScratch& scratch, size_t count, std::vector<Candidate>* candidates) {
  candidates->clear();
  for (size_t i = 0; i < count; ++i) candidates->push_back(scratch.ranked[i].candidate);
}

// Sets `out` to tokens that include every survivor of top-p (and of min-p after it): those close
// enough to the best score, usually a small part. `*total` becomes the weight of all tokens.
void SelectLikely(const Kernels& kernels, const float* scores, int64_t count, float temperature,
                  float top_p, float min_p, std::vector<Candidate>* out, double* total) {
  const float best = kernels.max(scores, count);
  *total = kernels.exp_sum(scores, count, best, temperature, nullptr);
  // Distances from the best score, in temperatures, that usually, nearly always and always suffice.
  const float everything = std::numeric_limits<float>::infinity();
  for (const float distance : {7.0f, 14.0f, everything}) {
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
  const size_t kept = SelectMass(scratch->ranked, static_cast<double>(mass) * total);
  TakeRanked(*scratch, kept, candidates);
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
  const size_t kept = SelectMass(scratch->ranked, static_cast<double>(mass) * total);
  TakeRanked(*scratch, kept, candidates);
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
