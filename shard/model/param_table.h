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
  kHeads,        // one number for each of the rank's query heads
  kHeadColumns,  // columns of the rank's query heads
  kMlpRows,
  kMlpColumns,
  kSharedRows,  // of the MLP that all tokens take, as kMlp* of a plain one
  kSharedColumns,
  kExpertRows,  // of every expert
  kExpertColumns,
};

// Order of the rows inside a head.
enum class RowOrder : uint8_t {
  kPlain,
  // Rotary pairs are neighbours (GGUF of llama-type models, DeepSeek): row 2i + j of the rotated
  // part is row i + j * dims / 2 in the half-split order that the decoder uses.
  kInterleavedRotary,
};

// Where the rows of a parameter lie in the tensor of a file that holds more than it, or holds it
// otherwise. Row r is the tensor's row first_row + r / run_rows * run_stride + r % run_rows.
struct FileLayout {
  // Of the tensor; empty: the parameter's own.
  std::vector<uint64_t> shape;
  uint64_t first_row = 0;
  // Rows that follow each other, and how far apart such runs begin; 0 = all rows are one run.
  uint64_t run_rows = 0;
  uint64_t run_stride = 0;
  // The tensor holds {inputs, outputs}: its columns are the rows meant above.
  bool transposed = false;
  // With `transposed`: so many rows of the parameter lie transposed in each run. Column c of row r
  // is in the tensor's row first_row + r / block_rows * run_stride + c, at r % block_rows.
  uint64_t block_rows = 0;
  // The tensor is a stack of so many such ones, and this one is meant; 0 = it is no stack.
  uint64_t stack_size = 0;
  uint64_t stack_index = 0;
};

// A parameter as the decoder knows it.
struct DecoderParam {
  ParamKey key;
  // Outermost first: {outputs, inputs} of a matrix, {outputs} of a vector.
  std::vector<uint64_t> shape;
  Split split = Split::kWhole;
};

struct ParamTensor : DecoderParam {
  // Name in the model files.
  std::string name;
  RowOrder row_order = RowOrder::kPlain;
  FileLayout file;
  // Not empty: the tensor holds codes of MXFP4, 16 bytes for each 32 columns, and the one of this
  // name the exponent of each block (safetensors of gpt-oss).
  std::string scales_name = {};
};

struct ModelDescription {
  DecoderSpec spec;
  std::vector<ParamTensor> params;
  // Tensors that may be in the files although nothing reads them; a name beginning with '*' matches
  // by its end, one that ends with '*' by its beginning. Any other extra tensor means that the
  // model is not what the spec says.
  std::vector<std::string> unused;
  // Of a model whose head is its embedding: what the head is called in files that hold it all the
  // same, with the embedding's bytes or not as this model. "" = such a tensor is extra.
  std::string tied_head_name;
  // Files may leave this out at the beginning of every name; "" = they may not.
  std::string optional_prefix;
};

}  // namespace weft::shard
