// The experts of a model as plain data: MLPs of which each token takes a few, chosen by a router.
// Part of DecoderSpec, made by shard/model/families, read-only afterwards. Knows nothing of ranks,
// devices or weights' bytes.

#pragma once

#include <cstdint>
#include <vector>

namespace weft::shard {

// Groups that experts may lie in.
inline constexpr uint32_t kExpertGroupsMax = 32;

// What the router's numbers x of a row become: shares exp(x) / sum of all exp(x), or each by itself
// 1 / (1 + exp(-x)).
enum class ExpertScore : uint8_t { kSoftmax, kSigmoid };

struct ExpertsSpec {
  // Experts of a layer; 0: the model has none, and nothing below counts.
  uint32_t count = 0;
  ExpertScore score = ExpertScore::kSoftmax;
  // Those of them that a token takes, by the largest scores; of equal ones the lower numbers.
  uint32_t per_token = 0;
  // A number for each expert is added to its score for that choice alone.
  bool choice_bias = false;
  // Experts lie in so many groups of equal size, one behind the other, and a token takes those of
  // its best groups_taken alone; of equal groups the lower numbers. A group is as good as the sum
  // of its group_best best (one or two).
  uint32_t groups = 1;
  uint32_t groups_taken = 1;
  uint32_t group_best = 1;
  // Columns of the hidden layer of one expert.
  uint32_t hidden = 0;
  // The weights of what a token takes sum to 1; otherwise they are the scores as they are. Then
  // they are multiplied by weight_scale.
  bool renormalised = false;
  float weight_scale = 1.0f;
  // Columns of an MLP that every token takes besides; 0 = there is none.
  uint32_t shared_hidden = 0;
  // What that MLP makes is multiplied by the sigmoid of a number that one more row of weights makes
  // of its input.
  bool shared_scale = false;
  // Of the router.
  bool router_bias = false;
  // Of gate, up and down of each expert.
  bool bias = false;
  // For each layer whether it has a plain MLP and no experts; empty: none has.
  std::vector<bool> plain_layers;
};

}  // namespace weft::shard
