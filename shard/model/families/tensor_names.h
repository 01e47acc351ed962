// A family's tensors as data: a row for each kind of parameter says what a file format calls its
// tensor and how it lies in it; of a tensor that holds several, the row of the first of them
// (query, gate, key up) stands for all. Shapes and slices follow from the spec (decoder_params.h).
// Pure, any thread.

#pragma once

#include <vector>

#include "absl/types/span.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// What else lies in the tensor of a parameter, row behind row.
enum class Fusion : uint8_t {
  kNone,
  // Query, key and value of all heads behind each other.
  kQueryKeyValue,
  // For each KV head the queries that use it, its key and its value.
  kByKvHead,
  // Gate, then up.
  kGateUp,
  // Rows of gate and up by turns.
  kGateUpByTurns,
  // For each head what makes its keys of latents, transposed, and what makes its values.
  kKeyUpValueUp,
};

struct TensorName {
  ParamKind kind;
  // '*' stands for the number of the layer, '#' for that of the expert. What experts have each
  // without '#' is a stack of all experts'.
  const char* name;
  Fusion fusion = Fusion::kNone;
  // The file holds the transposed matrix.
  bool transposed = false;
  // Where the matrix is in MXFP4 with its scales in a tensor of their own, the name of that one.
  const char* scales = nullptr;
};

// `own`, then `shared`.
std::vector<TensorName> Joined(absl::Span<const TensorName> own,
                               absl::Span<const TensorName> shared);

// The tensors of all parameters of the spec, each by the first row of `names` that has it; rows
// that the spec has no parameter for count for nothing. Rows of query, key and latent, biases
// included, lie in `query_key_order`. REQUIRES: a name for every parameter.
std::vector<ParamTensor> NameTensors(const DecoderSpec& spec, absl::Span<const TensorName> names,
                                     RowOrder query_key_order = RowOrder::kPlain);

}  // namespace weft::shard
