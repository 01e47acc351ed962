#include "shard/device/cuda/weight_layout.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

using kernels::cuda::PaddedGrid;

constexpr uint64_t kMatrixAlignment = 256;

// In the order of ParamKind.
constexpr const char* kNames[] = {"token embedding", "head",     "final norm", "attention norm",
                                  "query",           "key",      "value",      "output",
                                  "MLP norm",        "gate",     "up",         "down",
                                  "query bias",      "key bias", "value bias", "output bias",
                                  "gate bias",       "up bias",  "down bias"};
static_assert(std::size(kNames) == static_cast<size_t>(ParamKind::kDownBias) + 1);

// `rows` of `columns` behind each other, `stride` elements each in memory.
PaddedGrid Rows(uint32_t rows, uint32_t columns, uint32_t stride) {
  return PaddedGrid{rows, columns, stride, std::max(rows, 1u), std::max(rows, 1u), columns, stride};
}

PaddedGrid Vector(uint32_t size) { return Rows(1, size, size); }

// Columns of `heads`, each `head_dim` of `head_stride` elements in memory. Without padding all are
// one group.
PaddedGrid HeadColumns(uint32_t rows, uint32_t heads, const CudaShape& shape) {
  PaddedGrid grid = Rows(rows, heads * shape.head_dim, heads * shape.head_stride);
  if (shape.head_dim == shape.head_stride) return grid;
  grid.column_group = shape.head_dim;
  grid.column_group_stride = shape.head_stride;
  return grid;
}

PaddedGrid HeadRows(uint32_t heads, const CudaShape& shape) {
  PaddedGrid grid = Rows(heads * shape.head_dim, shape.hidden, shape.hidden);
  grid.row_group = shape.head_dim;
  grid.row_group_stride = shape.head_stride;
  return grid;
}

}  // namespace

std::string ParamName(ParamKey key) {
  const std::string name = kNames[static_cast<size_t>(key.kind)];
  const bool of_layer = key.kind > ParamKind::kFinalNorm;
  return of_layer ? absl::StrCat(name, " of layer ", key.layer) : name;
}

WeightLayout::WeightLayout(const DecoderSpec& spec, const CudaShape& shape)
    : shape_(shape), element_bytes_(BytesOf(shape.type)) {
  const PaddedGrid vocab = Rows(shape.vocab_used, shape.hidden, shape.hidden);
  const uint64_t vocab_elements = uint64_t{shape.vocab} * shape.hidden;
  Add({ParamKind::kTokenEmbedding}, Take(vocab_elements), vocab);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) AddLayer(layer, spec);
  Add({ParamKind::kFinalNorm}, Take(shape.hidden), Vector(shape.hidden));
  if (!spec.tied_head) Add({ParamKind::kHead}, Take(vocab_elements), vocab);
}

void WeightLayout::AddLayer(uint32_t layer, const DecoderSpec& spec) {
  const PaddedGrid hidden = Vector(shape_.hidden);
  Add({ParamKind::kAttentionNorm, layer}, Take(shape_.hidden), hidden);
  AddQueryKeyValue(layer, spec.qkv_bias);
  Add({ParamKind::kOutput, layer}, Take(uint64_t{shape_.hidden} * shape_.query_columns()),
      HeadColumns(shape_.hidden, shape_.query_heads, shape_));
  if (spec.output_bias) Add({ParamKind::kOutputBias, layer}, Take(shape_.hidden), hidden);
  Add({ParamKind::kMlpNorm, layer}, Take(shape_.hidden), hidden);
  AddMlp(layer, spec.mlp_bias);
}

// Query, key and value lie behind each other, so that one product makes all three.
void WeightLayout::AddQueryKeyValue(uint32_t layer, bool bias) {
  const struct {
    ParamKind kind;
    ParamKind bias;
    uint32_t heads;
    // First row of the matrix, first element of the bias.
    uint64_t begin;
  } parts[] = {
      {ParamKind::kQuery, ParamKind::kQueryBias, shape_.query_heads, 0},
      {ParamKind::kKey, ParamKind::kKeyBias, shape_.kv_heads, shape_.query_columns()},
      {ParamKind::kValue, ParamKind::kValueBias, shape_.kv_heads,
       shape_.query_columns() + shape_.kv_columns()},
  };
  const uint64_t matrix = Take(uint64_t{shape_.qkv_columns()} * shape_.hidden);
  for (const auto& part : parts) {
    Add({part.kind, layer}, matrix + part.begin * shape_.hidden * element_bytes_,
        HeadRows(part.heads, shape_));
  }
  if (!bias) return;
  const uint64_t vector = Take(shape_.qkv_columns());
  for (const auto& part : parts) {
    Add({part.bias, layer}, vector + part.begin * element_bytes_,
        HeadColumns(1, part.heads, shape_));
  }
}

void WeightLayout::AddMlp(uint32_t layer, bool bias) {
  const PaddedGrid rows = Rows(shape_.mlp_used, shape_.hidden, shape_.hidden);
  const uint64_t gate_elements = uint64_t{shape_.mlp} * shape_.hidden;
  const uint64_t gate = Take(2 * gate_elements);
  Add({ParamKind::kGate, layer}, gate, rows);
  Add({ParamKind::kUp, layer}, gate + gate_elements * element_bytes_, rows);
  if (bias) {
    const PaddedGrid vector = Rows(1, shape_.mlp_used, shape_.mlp);
    const uint64_t gate_bias = Take(2 * uint64_t{shape_.mlp});
    Add({ParamKind::kGateBias, layer}, gate_bias, vector);
    Add({ParamKind::kUpBias, layer}, gate_bias + shape_.mlp * element_bytes_, vector);
  }
  Add({ParamKind::kDown, layer}, Take(gate_elements),
      Rows(shape_.hidden, shape_.mlp_used, shape_.mlp));
  if (bias) Add({ParamKind::kDownBias, layer}, Take(shape_.hidden), Vector(shape_.hidden));
}

void WeightLayout::Add(ParamKey key, uint64_t offset, const PaddedGrid& grid) {
  params_.push_back(key);
  locations_[ParamNumber(key)] = WeightLocation{offset, grid};
  row_bytes_max_ = std::max(row_bytes_max_, grid.stride * element_bytes_);
}

uint64_t WeightLayout::Take(uint64_t elements) {
  const uint64_t offset = bytes_;
  const uint64_t bytes = elements * element_bytes_;
  bytes_ += (bytes + kMatrixAlignment - 1) / kMatrixAlignment * kMatrixAlignment;
  return offset;
}

absl::StatusOr<WeightLocation> WeightLayout::Find(ParamKey key) const {
  const auto location = locations_.find(ParamNumber(key));
  if (location != locations_.end()) return location->second;
  return absl::InternalError(absl::StrCat(ParamName(key), " is no part of this model"));
}

}  // namespace weft::shard
