// What holds for every model family, checked before anything is made from the numbers of a model's
// files. Called once by the family's code while a model is opened; pure.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "shard/model/decoder_spec.h"

namespace weft::shard {

// Where a model's files state what is checked, as "<file>: <key>", for messages. The end ids have
// one that depends on where they were found.
struct SpecKeys {
  std::string layers;
  std::string hidden;
  std::string heads;
  std::string kv_heads;
  std::string head_dim;
  std::string mlp_hidden;
  std::string vocab;
  std::string context_tokens;
  std::string norm_epsilon;
  std::string rope_dims;
  std::string rope_theta;
  // In front of "factor" and the others of rotary scaling.
  std::string rope_scaling;
  // The tensor of rotary divisors, or the lists of longrope.
  std::string rope_factors;
};

// Sizes within common/limits.h, heads that divide into KV heads, rotary settings and an epsilon
// that give finite numbers. INVALID_ARGUMENT names file, key, range and what was found.
absl::Status ValidateSpec(const DecoderSpec& spec, const SpecKeys& keys);

}  // namespace weft::shard
