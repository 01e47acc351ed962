// The reader of a family's GGUF metadata, from what the family says of itself as data. All of them
// name sizes and tensors alike; what no key tells (biases, norms of heads, a head of its own) the
// tensors do. Called once while a model is opened; pure. Names of keys and tensors: llama.cpp's
// gguf-py/gguf/constants.py.

#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "shard/model/families/gguf_keys.h"
#include "shard/model/families/tensor_names.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// Whether files of an architecture may have experts, and what the weights of those are.
enum class GgufExperts : uint8_t { kNone, kRenormalised, kShares };

struct GgufFamily {
  // The family as config.json's model_type has it, and GGUF's general.architecture.
  const char* name;
  const char* architecture;
  NormKind norm = NormKind::kLayerNorm;
  PositionKind position = PositionKind::kRotary;
  Activation activation = Activation::kGeluTanh;
  bool gated_mlp = false;
  GgufExperts experts = GgufExperts::kNone;
  // Otherwise a window is refused.
  bool reads_window = false;
  // Before those that all families have in common (gguf_family.cc).
  absl::Span<const TensorName> own_tensors = {};
  RowOrder query_key_order = RowOrder::kPlain;
  // Fills what the fields above, the common keys and the tensors do not say; null: nothing. All
  // sizes are in `spec` already, unchecked, and what follows from them.
  absl::Status (*finish)(const GgufKeys& keys, DecoderSpec* spec) = nullptr;
};

// Query, key and value of all heads in one tensor: of most families' converters, which sort them.
inline constexpr TensorName kGgufFusedQkv[] = {
    {ParamKind::kQuery, "blk.*.attn_qkv.weight", Fusion::kQueryKeyValue},
    {ParamKind::kQueryBias, "blk.*.attn_qkv.bias", Fusion::kQueryKeyValue},
};

// UNIMPLEMENTED naming the key for what this code does not have: experts, encoders, windows and
// rotary scaling where the family has none.
absl::StatusOr<ModelDescription> ReadGgufFamily(const GgufFamily& family, const GgufFile& file);

}  // namespace weft::shard
