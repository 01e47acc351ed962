#include "shard/control/model_facts.h"

#include <algorithm>

#include "common/limits.h"

namespace weft::shard {
namespace {

weft::v1::DataType ToProto(NumberType type) {
  switch (type) {
    case NumberType::kFloat32:
      return weft::v1::DATA_TYPE_FLOAT32;
    case NumberType::kBfloat16:
      return weft::v1::DATA_TYPE_BFLOAT16;
    case NumberType::kFloat16:
      return weft::v1::DATA_TYPE_FLOAT16;
    case NumberType::kAuto:
      break;
  }
  return weft::v1::DATA_TYPE_UNSPECIFIED;
}

}  // namespace

void AddModelFacts(const ModelFiles& files, const MemoryPlan& plan, uint32_t block_tokens,
                   v1::InfoResponse* facts) {
  const DecoderSpec& spec = files.spec();
  facts->set_spec_hash(files.Hash());
  facts->set_dtype(ToProto(plan.types.activation));
  facts->set_kv_dtype(ToProto(plan.types.kv));
  facts->set_vocab_size(spec.vocab);
  facts->set_context_tokens(std::min(spec.context_tokens, kContextTokensMax));
  facts->set_family(spec.family);
  facts->set_parameters(spec.parameters());
  facts->mutable_eos_ids()->Add(spec.eos_ids.begin(), spec.eos_ids.end());
  for (const KvGroup& of_plan : plan.kv_groups.groups) {
    v1::KvGroup* const group = facts->add_kv_groups();
    group->set_layers(static_cast<uint32_t>(of_plan.layers.size()));
    group->set_kv_heads(spec.kv_heads);
    group->set_head_dim(spec.head_dim);
    group->set_window_tokens(of_plan.window_tokens);
    group->set_block_tokens(block_tokens);
    group->set_block_bytes(plan.kv_block_bytes);
  }
  facts->mutable_memory()->set_weights_bytes(plan.weights_bytes);
  facts->mutable_memory()->set_workspace_bytes(plan.workspace_bytes);
  facts->mutable_memory()->set_kv_bytes(plan.kv_bytes);
}

}  // namespace weft::shard
