// Experts as config.json and GGUF metadata state them. Called once by a family's code while a model
// is opened; pure.

#pragma once

#include "absl/status/status.h"
#include "shard/model/decoder_spec.h"
#include "shard/model/families/gguf_keys.h"
#include "shard/model/hf_config.h"

namespace weft::shard {

// Keys of config.json. Null: there is no such key.
struct ExpertKeys {
  const char* count = "num_experts";
  // What newer files may call it.
  const char* other_count = "num_local_experts";
  const char* per_token = "num_experts_per_tok";
  const char* hidden = "moe_intermediate_size";
  const char* shared_hidden = nullptr;
  // Whether weights are renormalised; null: they are.
  const char* renormalised = "norm_topk_prob";
};

// Fills spec->experts but for biases. INVALID_ARGUMENT naming the key and its range.
absl::Status ExpertsFromHf(const HfObject& root, const ExpertKeys& keys, DecoderSpec* spec);

// mlp_only_layers and decoder_sparse_step: which layers have no experts. A layer has them when
// neither says otherwise and its number, from 1, is a multiple of the step.
absl::Status PlainLayersFromHf(const HfObject& root, DecoderSpec* spec);

// An MLP beside the experts that is `key` experts wide, which are the same to a token as so many
// that it always takes. REQUIRES: ExpertsFromHf.
absl::Status SharedExpertsFromHf(const HfObject& root, const char* key, DecoderSpec* spec);

// The first `key` layers have no experts.
absl::Status FirstLayersPlain(const HfObject& root, const char* key, uint32_t otherwise,
                              DecoderSpec* spec);

// n_group and topk_group. REQUIRES: ExpertsFromHf, spec->experts.group_best.
absl::Status ExpertGroupsFromHf(const HfObject& root, DecoderSpec* spec);

// Fills spec->experts where expert_count is not zero.
absl::Status ExpertsFromGguf(const GgufKeys& keys, bool renormalised, DecoderSpec* spec);

}  // namespace weft::shard
