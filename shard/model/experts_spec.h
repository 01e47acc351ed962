// The experts of a model as plain data: MLPs of which each token takes a few, chosen by a router.
// Part of DecoderSpec, made by shard/model/families, read-only afterwards. Knows nothing of ranks,
// devices or weights' bytes.

#pragma once

#include <cstdint>
#include <vector>

namespace weft::shard {

struct ExpertsSpec {
  // Experts of a layer; 0: the model has none, and nothing below counts.
  uint32_t count = 0;
  // Those of them that a token takes, by the largest shares of a softmax over all of them; of equal
  // ones the lower numbers.
  uint32_t per_token = 0;
  // Columns of the hidden layer of one expert.
  uint32_t hidden = 0;
  // The weights of what a token takes sum to 1; otherwise they are the shares as they are.
  bool renormalised = false;
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
