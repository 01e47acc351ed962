// The name of a parameter of the decoder: its role and its layer. What families, files and devices
// call it by; plain data, any thread. Knows neither shapes nor bytes.

#pragma once

#include <cstdint>
#include <string>

#include "common/limits.h"

namespace weft::shard {

// Role of a parameter in the decoder. Vectors have one dimension, of "heads", "columns" or "slice"
// this rank's.
enum class ParamKind : uint8_t {
  kTokenEmbedding,  // [vocab slice, embedding columns]
  kHead,            // [vocab slice, embedding columns]; absent when tied
  kFinalNorm,       // [hidden]; absent where no norm stands in front of the head
  kAttentionNorm,   // [hidden]
  kQuery,           // [query heads * query_dim, hidden or query_rank], half-split rotary order
  kKey,             // [KV heads * head_dim, hidden], half-split rotary order
  kValue,           // [KV heads * head_dim, hidden]
  kOutput,          // [hidden, query heads * output_dim]
  kMlpNorm,         // [hidden]; absent with one norm for attention and MLP
  kGate,            // [MLP columns, hidden]; absent without a gate
  kUp,              // [MLP columns, hidden]
  kDown,            // [hidden, MLP columns]
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputBias,
  kGateBias,
  kUpBias,
  kDownBias,
  kPositionEmbedding,  // [positions, hidden]
  kEmbeddingNorm,      // [hidden]
  kPostAttentionNorm,  // [hidden]
  kPostMlpNorm,        // [hidden]
  kQueryNorm,          // [head_dim]
  kKeyNorm,            // [head_dim]
  kEmbeddingNormBias,
  kAttentionNormBias,
  kMlpNormBias,
  kFinalNormBias,
  kHeadBias,    // [vocab slice]
  kSinks,       // [query heads of this rank]: logits beside the scores of each head
  kRouter,      // [experts, hidden]
  kExpertGate,  // [columns of an expert, hidden], and so on, of expert `ParamKey::expert`
  kExpertUp,
  kExpertDown,
  kSharedGate,  // [columns of the shared MLP, hidden]
  kSharedUp,
  kSharedDown,
  kSharedScale,  // [1, hidden]
  // Of latent attention: what makes latents and their norms, and the matrices of each head.
  kQueryDown,        // [query_rank, hidden]
  kQueryLatentNorm,  // [query_rank]
  kLatent,           // [head_dim, hidden], half-split rotary order
  kLatentNorm,       // [rank]
  kKeyUp,            // [query heads * rank, plain_dim]
  kValueUp,          // [query heads * value_dim, rank]
  // With an embedding of another width than the layers.
  kProjectIn,   // [hidden, embedding columns]
  kProjectOut,  // [embedding columns, hidden]
  kRouterBias,
  kChoiceBias,  // [experts]
  kExpertGateBias,
  kExpertUpBias,
  kExpertDownBias,
};
inline constexpr uint32_t kParamKinds = static_cast<uint32_t>(ParamKind::kExpertDownBias) + 1;

struct ParamKey {
  ParamKind kind;
  // Layer from 0; 0 for parameters outside the layers.
  uint32_t layer = 0;
  // Expert from 0; 0 for parameters that are no expert's.
  uint32_t expert = 0;
};

// A number of its own for each parameter of a model.
inline constexpr uint32_t ParamNumber(ParamKey key) {
  return (key.expert * kLayersMax + key.layer) * 64 + static_cast<uint32_t>(key.kind);
}
static_assert(kParamKinds <= 64 && uint64_t{kExpertsMax} * kLayersMax * 64 < (uint64_t{1} << 32));

// Weights of a normalisation, as against matrices and biases.
inline constexpr bool IsNorm(ParamKind kind) {
  switch (kind) {
    case ParamKind::kFinalNorm:
    case ParamKind::kAttentionNorm:
    case ParamKind::kMlpNorm:
    case ParamKind::kEmbeddingNorm:
    case ParamKind::kPostAttentionNorm:
    case ParamKind::kPostMlpNorm:
    case ParamKind::kQueryNorm:
    case ParamKind::kKeyNorm:
    case ParamKind::kQueryLatentNorm:
    case ParamKind::kLatentNorm:
      return true;
    default:
      return false;
  }
}

// What is added to the outputs of a matrix or of a normalisation, and sinks.
inline constexpr bool IsBias(ParamKind kind) {
  return (kind >= ParamKind::kQueryBias && kind <= ParamKind::kDownBias) ||
         (kind >= ParamKind::kEmbeddingNormBias && kind <= ParamKind::kSinks) ||
         kind >= ParamKind::kRouterBias;
}

// Matrices whose inputs are the columns of a MLP's hidden layer.
inline constexpr bool IsDown(ParamKind kind) {
  return kind == ParamKind::kDown || kind == ParamKind::kExpertDown ||
         kind == ParamKind::kSharedDown;
}

// Parameters that a layer has once for each expert.
inline constexpr bool IsOfExpert(ParamKind kind) {
  return (kind >= ParamKind::kExpertGate && kind <= ParamKind::kExpertDown) ||
         kind >= ParamKind::kExpertGateBias;
}

// "query of layer 3", for messages.
std::string ParamName(ParamKey key);

}  // namespace weft::shard
