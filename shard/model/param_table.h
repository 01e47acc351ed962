// What a family says about a model: its DecoderSpec and, for each parameter of the decoder, the
// name of its tensor in the files, its shape and how tensor parallelism splits it. Plain data, made
// by shard/model/families, read by shard/weights. Knows no bytes and no ranks.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shard/model/decoder_spec.h"
#include "shard/model/param_key.h"

namespace weft::shard {

// Which part of a tensor a rank holds; the ranges are those of SlicePlan.
enum class Split : uint8_t {
  kWhole,
  kVocabRows,
  kHeadRows,     // rows of the rank's query heads
  kKvHeadRows,   // rows of the rank's KV heads
  kHeadColumns,  // columns of the rank's query heads
  kMlpRows,
  kMlpColumns,
};

// Order of the rows inside a head.
enum class RowOrder : uint8_t {
  kPlain,
  // Rotary pairs are neighbours (GGUF of llama-type models): row 2i + j of the rotated part is row
  // i + j * dims / 2 in the half-split order that the decoder uses.
  kInterleavedRotary,
};

struct ParamTensor {
  ParamKey key;
  // Name in the model files.
  std::string name;
  // Outermost first: {outputs, inputs} of a matrix, {outputs} of a vector.
  std::vector<uint64_t> shape;
  Split split = Split::kWhole;
  RowOrder row_order = RowOrder::kPlain;
};

struct ModelDescription {
  DecoderSpec spec;
  std::vector<ParamTensor> params;
  // Tensors that may be in the files although nothing reads them; a name beginning with '*' matches
  // by its end. Any other extra tensor means that the model is not what the spec says.
  std::vector<std::string> unused;
};

}  // namespace weft::shard
