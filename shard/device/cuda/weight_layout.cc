#include "shard/device/cuda/weight_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

using kernels::cuda::PaddedGrid;

constexpr uint64_t kMatrixAlignment = 256;

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

WeightLayout::WeightLayout(const DecoderSpec& spec, const CudaShape& shape)
    : shape_(shape), element_bytes_(BytesOf(shape.type)) {
  const PaddedGrid vocab = Rows(shape.vocab_used, shape.hidden, shape.hidden);
  const uint64_t vocab_elements = uint64_t{shape.vocab} * shape.hidden;
  Add({ParamKind::kTokenEmbedding}, Take(vocab_elements), vocab);
  if (spec.position == PositionKind::kLearned) {
    Add({ParamKind::kPositionEmbedding}, Take(uint64_t{spec.position_rows} * shape.hidden),
        Rows(spec.position_rows, shape.hidden, shape.hidden));
  }
  if (spec.embedding_norm) {
    AddNorm(ParamKind::kEmbeddingNorm, ParamKind::kEmbeddingNormBias, 0, spec);
  }
  for (uint32_t layer = 0; layer < shape.layers; ++layer) AddLayer(layer, spec);
  AddNorm(ParamKind::kFinalNorm, ParamKind::kFinalNormBias, 0, spec);
  if (!spec.tied_head) Add({ParamKind::kHead}, Take(vocab_elements), vocab);
  if (spec.head_bias) {
    Add({ParamKind::kHeadBias}, Take(shape.vocab), Rows(1, shape.vocab_used, shape.vocab));
  }
}

void WeightLayout::AddNorm(ParamKind weight, ParamKind bias, uint32_t layer,
                           const DecoderSpec& spec) {
  Add({weight, layer}, Take(shape_.hidden), Vector(shape_.hidden));
  if (spec.norm_bias) Add({bias, layer}, Take(shape_.hidden), Vector(shape_.hidden));
}

void WeightLayout::AddLayer(uint32_t layer, const DecoderSpec& spec) {
  AddNorm(ParamKind::kAttentionNorm, ParamKind::kAttentionNormBias, layer, spec);
  AddQueryKeyValue(layer, spec.qkv_bias);
  if (spec.head_norms) {
    const PaddedGrid head = Rows(1, shape_.head_dim, shape_.head_stride);
    Add({ParamKind::kQueryNorm, layer}, Take(shape_.head_stride), head);
    Add({ParamKind::kKeyNorm, layer}, Take(shape_.head_stride), head);
  }
  Add({ParamKind::kOutput, layer}, Take(uint64_t{shape_.hidden} * shape_.query_columns()),
      HeadColumns(shape_.hidden, shape_.query_heads, shape_));
  if (spec.attention_sinks) {
    Add({ParamKind::kSinks, layer}, Take(shape_.query_heads), Vector(shape_.query_heads));
  }
  if (spec.output_bias) {
    Add({ParamKind::kOutputBias, layer}, Take(shape_.hidden), Vector(shape_.hidden));
  }
  if (spec.post_norms) {
    for (const ParamKind kind : {ParamKind::kPostAttentionNorm, ParamKind::kPostMlpNorm}) {
      Add({kind, layer}, Take(shape_.hidden), Vector(shape_.hidden));
    }
  }
  if (!spec.shared_norm) AddNorm(ParamKind::kMlpNorm, ParamKind::kMlpNormBias, layer, spec);
  AddMlp(layer, spec);
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

void WeightLayout::AddMlp(uint32_t layer, const DecoderSpec& spec) {
  const PaddedGrid rows = Rows(shape_.mlp_used, shape_.hidden, shape_.hidden);
  const uint64_t columns = shape_.gate_up_columns();
  // Where the ups begin.
  const uint64_t ups = columns - shape_.mlp;
  const uint64_t gate_up = Take(columns * shape_.hidden);
  if (spec.gated_mlp) Add({ParamKind::kGate, layer}, gate_up, rows);
  Add({ParamKind::kUp, layer}, gate_up + ups * shape_.hidden * element_bytes_, rows);
  if (spec.mlp_bias) {
    const PaddedGrid vector = Rows(1, shape_.mlp_used, shape_.mlp);
    const uint64_t bias = Take(columns);
    if (spec.gated_mlp) Add({ParamKind::kGateBias, layer}, bias, vector);
    Add({ParamKind::kUpBias, layer}, bias + ups * element_bytes_, vector);
  }
  Add({ParamKind::kDown, layer}, Take(uint64_t{shape_.mlp} * shape_.hidden),
      Rows(shape_.hidden, shape_.mlp_used, shape_.mlp));
  if (spec.mlp_bias) {
    Add({ParamKind::kDownBias, layer}, Take(shape_.hidden), Vector(shape_.hidden));
  }
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
