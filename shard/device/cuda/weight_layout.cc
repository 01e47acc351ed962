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
  const PaddedGrid vocab = Rows(shape.vocab_used, shape.embedding, shape.embedding);
  const uint64_t vocab_elements = uint64_t{shape.vocab} * shape.embedding;
  Add({ParamKind::kTokenEmbedding}, Take(vocab_elements), vocab);
  if (shape.projects) {
    AddPlain({ParamKind::kProjectIn}, shape.hidden, shape.embedding);
    AddPlain({ParamKind::kProjectOut}, shape.embedding, shape.hidden);
  }
  if (spec.position == PositionKind::kLearned) {
    Add({ParamKind::kPositionEmbedding}, Take(uint64_t{spec.position_rows} * shape.hidden),
        Rows(spec.position_rows, shape.hidden, shape.hidden));
  }
  if (spec.embedding_norm) {
    AddNorm(ParamKind::kEmbeddingNorm, ParamKind::kEmbeddingNormBias, 0, spec);
  }
  for (uint32_t layer = 0; layer < shape.layers; ++layer) AddLayer(layer, spec);
  if (spec.final_norm) AddNorm(ParamKind::kFinalNorm, ParamKind::kFinalNormBias, 0, spec);
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
  if (shape_.latent) {
    AddLatent(layer);
  } else {
    AddQueryKeyValue(layer, spec.qkv_bias);
  }
  if (spec.head_norms) {
    const PaddedGrid head = Rows(1, shape_.head_dim, shape_.head_stride);
    Add({ParamKind::kQueryNorm, layer}, Take(shape_.head_stride), head);
    Add({ParamKind::kKeyNorm, layer}, Take(shape_.head_stride), head);
  }
  if (shape_.latent) {
    AddPlain({ParamKind::kOutput, layer}, shape_.hidden, shape_.output_columns());
  } else {
    Add({ParamKind::kOutput, layer}, Take(uint64_t{shape_.hidden} * shape_.query_columns()),
        HeadColumns(shape_.hidden, shape_.query_heads, shape_));
  }
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

void WeightLayout::AddLatent(uint32_t layer) {
  const uint32_t heads = shape_.query_heads;
  uint32_t inputs = shape_.hidden;
  if (shape_.query_rank > 0) {
    AddPlain({ParamKind::kQueryDown, layer}, shape_.query_rank, inputs);
    AddPlain({ParamKind::kQueryLatentNorm, layer}, 1, shape_.query_rank);
    inputs = shape_.query_rank;
  }
  AddPlain({ParamKind::kQuery, layer}, heads * shape_.query_dim, inputs);
  AddPlain({ParamKind::kLatent, layer}, shape_.head_dim, shape_.hidden);
  AddPlain({ParamKind::kLatentNorm, layer}, 1, shape_.attention_dim);
  AddPlain({ParamKind::kKeyUp, layer}, heads * shape_.attention_dim, shape_.plain_dim);
  AddPlain({ParamKind::kValueUp, layer}, heads * shape_.output_dim, shape_.attention_dim);
}

void WeightLayout::AddMlp(uint32_t layer, const DecoderSpec& spec) {
  if (spec.HasExperts(layer)) return AddExperts(layer, spec);
  const uint64_t columns = shape_.gate_up_columns();
  Mlp mlp = {.columns = shape_.mlp,
             .used = shape_.mlp_used,
             .gated = spec.gated_mlp,
             .bias = spec.mlp_bias};
  mlp.gate_up = Take(columns * shape_.hidden);
  if (mlp.bias) mlp.gate_up_bias = Take(columns);
  mlp.down_at = Take(uint64_t{shape_.mlp} * shape_.hidden);
  if (mlp.bias) mlp.down_bias_at = Take(shape_.hidden);
  AddMlpMatrices(layer, 0, mlp);
}

// The experts' matrices of a kind lie behind each other, so that one description serves all.
void WeightLayout::AddExperts(uint32_t layer, const DecoderSpec& spec) {
  const uint64_t hidden = shape_.hidden;
  Add({ParamKind::kRouter, layer}, Take(shape_.router_rows * hidden),
      Rows(shape_.experts, shape_.hidden, shape_.hidden));
  if (spec.experts.router_bias) {
    Add({ParamKind::kRouterBias, layer}, Take(shape_.router_rows), Vector(shape_.experts));
  }
  if (spec.experts.choice_bias) {
    // Differences of shares decide, which bfloat16 would blur: room for float32 in any type.
    const ParamKey key = {ParamKind::kChoiceBias, layer};
    Add(key, Take(2 * shape_.experts), Vector(shape_.experts));
    locations_[ParamNumber(key)].type = kernels::cuda::DType::kFloat32;
  }
  Mlp mlp = {.gate = ParamKind::kExpertGate,
             .up = ParamKind::kExpertUp,
             .down = ParamKind::kExpertDown,
             .gate_bias = ParamKind::kExpertGateBias,
             .up_bias = ParamKind::kExpertUpBias,
             .down_bias = ParamKind::kExpertDownBias,
             .columns = shape_.expert_mlp,
             .used = shape_.expert_mlp_used,
             .bias = spec.experts.bias};
  const uint64_t columns = shape_.expert_mlp;
  mlp.gate_up = Take(shape_.experts * 2 * columns * hidden);
  mlp.down_at = Take(shape_.experts * columns * hidden);
  if (mlp.bias) {
    mlp.gate_up_bias = Take(shape_.experts * 2 * columns);
    mlp.down_bias_at = Take(shape_.experts * hidden);
  }
  for (uint32_t expert = 0; expert < shape_.experts; ++expert) {
    AddMlpMatrices(layer, expert, mlp);
    mlp.gate_up += 2 * columns * hidden * element_bytes_;
    mlp.down_at += columns * hidden * element_bytes_;
    mlp.gate_up_bias += 2 * columns * element_bytes_;
    mlp.down_bias_at += hidden * element_bytes_;
  }
  if (shape_.shared_mlp == 0) return;
  Mlp shared = {.gate = ParamKind::kSharedGate,
                .up = ParamKind::kSharedUp,
                .down = ParamKind::kSharedDown,
                .columns = shape_.shared_mlp,
                .used = shape_.shared_mlp_used};
  shared.gate_up = Take(2 * shape_.shared_mlp * hidden);
  shared.down_at = Take(shape_.shared_mlp * hidden);
  AddMlpMatrices(layer, 0, shared);
  if (spec.experts.shared_scale) {
    Add({ParamKind::kSharedScale, layer}, Take(hidden), Vector(shape_.hidden));
  }
}

void WeightLayout::AddMlpMatrices(uint32_t layer, uint32_t expert, const Mlp& mlp) {
  const uint32_t hidden = shape_.hidden;
  const PaddedGrid rows = Rows(mlp.used, hidden, hidden);
  const PaddedGrid vector = Rows(1, mlp.used, mlp.columns);
  // Where the ups begin.
  const uint64_t ups = mlp.gated ? mlp.columns : 0;
  if (mlp.gated) Add({mlp.gate, layer, expert}, mlp.gate_up, rows);
  Add({mlp.up, layer, expert}, mlp.gate_up + ups * hidden * element_bytes_, rows);
  if (mlp.bias) {
    if (mlp.gated) Add({mlp.gate_bias, layer, expert}, mlp.gate_up_bias, vector);
    Add({mlp.up_bias, layer, expert}, mlp.gate_up_bias + ups * element_bytes_, vector);
    Add({mlp.down_bias, layer, expert}, mlp.down_bias_at, Vector(hidden));
  }
  Add({mlp.down, layer, expert}, mlp.down_at, Rows(hidden, mlp.used, mlp.columns));
}

void WeightLayout::Add(ParamKey key, uint64_t offset, const PaddedGrid& grid) {
  params_.push_back(key);
  locations_[ParamNumber(key)] = WeightLocation{offset, grid, shape_.type};
  row_bytes_max_ = std::max(row_bytes_max_, grid.stride * element_bytes_);
}

void WeightLayout::AddPlain(ParamKey key, uint32_t rows, uint32_t columns) {
  Add(key, Take(uint64_t{rows} * columns), Rows(rows, columns, columns));
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
