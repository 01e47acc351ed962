#include "shard/model/families/mixtral.h"

#include "common/status.h"
#include "shard/model/families/attention_keys.h"
#include "shard/model/families/expert_keys.h"
#include "shard/model/families/llama_like.h"

namespace weft::shard {
namespace {

// Of MixtralConfig, where config.json has no such key; it has no window then.
constexpr uint32_t kKvHeadsDefault = 8;

constexpr TensorName kTensors[] = {
    {ParamKind::kRouter, "model.layers.*.block_sparse_moe.gate.weight"},
    {ParamKind::kExpertGate, "model.layers.*.block_sparse_moe.experts.#.w1.weight"},
    {ParamKind::kExpertUp, "model.layers.*.block_sparse_moe.experts.#.w3.weight"},
    {ParamKind::kExpertDown, "model.layers.*.block_sparse_moe.experts.#.w2.weight"},
};

// Weights of the chosen experts always sum to 1.
constexpr ExpertKeys kExpertKeys = {
    .count = "num_local_experts", .hidden = "intermediate_size", .renormalised = nullptr};

absl::Status Finish(const HfObject& root, DecoderSpec* spec) {
  WEFT_RETURN_IF_ERROR(WindowOfAllLayers(root, spec));
  return ExpertsFromHf(root, kExpertKeys, spec);
}

constexpr LlamaLike kMixtral = {.name = "mixtral",
                                .architecture = "MixtralForCausalLM",
                                .kv_heads_default = kKvHeadsDefault,
                                .own_hf_names = kTensors,
                                .finish_hf = Finish};

}  // namespace

absl::StatusOr<ModelDescription> MixtralFromHf(const HfConfig& config) {
  return LlamaLikeFromHf(kMixtral, config);
}

}  // namespace weft::shard
