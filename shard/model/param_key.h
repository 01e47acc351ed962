// The name of a parameter of the decoder: its role and its layer. What families, files and devices
// call it by; plain data, any thread. Knows neither shapes nor bytes.

#pragma once

#include <cstdint>

namespace weft::shard {

// Role of a parameter in the decoder.
enum class ParamKind : uint8_t {
  kTokenEmbedding,  // [vocab slice, hidden]
  kHead,            // [vocab slice, hidden]; absent when tied
  kFinalNorm,       // [hidden]
  kAttentionNorm,   // [hidden]
  kQuery,           // [query heads of this rank * head_dim, hidden], half-split rotary order
  kKey,             // [KV heads of this rank * head_dim, hidden], half-split rotary order
  kValue,           // [KV heads of this rank * head_dim, hidden]
  kOutput,          // [hidden, query heads of this rank * head_dim]
  kMlpNorm,         // [hidden]
  kGate,            // [MLP columns of this rank, hidden]
  kUp,              // [MLP columns of this rank, hidden]
  kDown,            // [hidden, MLP columns of this rank]
  kQueryBias,
  kKeyBias,
  kValueBias,
  kOutputBias,
  kGateBias,
  kUpBias,
  kDownBias,
};

struct ParamKey {
  ParamKind kind;
  // Layer from 0; 0 for parameters outside the layers.
  uint32_t layer = 0;
};

// A number of its own for each parameter of a model.
inline constexpr uint32_t ParamNumber(ParamKey key) {
  return key.layer * 32 + static_cast<uint32_t>(key.kind);
}

// Weights of a normalisation, as against matrices and biases.
inline constexpr bool IsNorm(ParamKind kind) {
  return kind == ParamKind::kFinalNorm || kind == ParamKind::kAttentionNorm ||
         kind == ParamKind::kMlpNorm;
}

}  // namespace weft::shard
