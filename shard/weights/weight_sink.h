// What the loader hands to a device: each rank's slice of each parameter, row by row, in the type
// of the file. The device (shard/device/cpu packs, shard/device/cuda will upload) owns what it
// makes of it. Called by loader threads, several at once for different parameters.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft::shard {

// Number format of a parameter in the model file; quantised ones in blocks of 32 inputs.
enum class TensorType : uint8_t { kF32, kF16, kBf16, kQ8_0, kQ4_0, kQ4_1 };

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

// A matrix slice: `outputs` rows of `inputs` elements of `type`. row(i) points to the first byte of
// row i of the slice; rows are contiguous in themselves but not with each other. Valid only during
// the call that receives it.
struct MatrixSource {
  TensorType type;
  int64_t outputs = 0;
  int64_t inputs = 0;
  absl::FunctionRef<const uint8_t*(int64_t)> row;
};

class WeightSink {
 public:
  virtual ~WeightSink() = default;

  // Takes a matrix slice. RESOURCE_EXHAUSTED when there is no memory.
  virtual absl::Status AddMatrix(ParamKey key, const MatrixSource& source) = 0;
  // Takes a vector (norm weights, biases), already float32.
  virtual absl::Status AddVector(ParamKey key, absl::Span<const float> values) = 0;
};

}  // namespace weft::shard
