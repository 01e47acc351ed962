// The half of CudaOps that attends: what attention's kernels plan ahead, rotation and the KV cache,
// attention itself, and the choice of the rows that go on.

#include "common/status.h"
#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/prompt_attention.h"
#include "kernels/cuda/elementwise/heads.h"
#include "kernels/cuda/elementwise/rows.h"
#include "shard/device/cuda/ops.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::BytesOf;
using kernels::cuda::DType;

}  // namespace

absl::Status CudaOps::PrepareAttention() {
  const uint32_t tables = step_.sequences() * limits_.kv_groups;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(kernels::cuda::UnpackBlockTables({inputs_.block_ids, inputs_.table_begin, tables,
                                                   ws_.block_tables, limits_.blocks_per_sequence()},
                                                  stream_),
                 "block tables"));
  if (shape_.latent) return absl::OkStatus();
  if (step_.decode_rows > 0 && shape_.type == DType::kBfloat16) {
    for (uint32_t group = 0; group < limits_.kv_groups; ++group) {
      WEFT_RETURN_IF_ERROR(PlanDecode(group));
    }
  }
  if (step_.chunks == 0) return absl::OkStatus();
  kernels::cuda::PromptAttentionParams prompt;
  prompt.attention = AttentionOf(0, step_.decode_rows, step_.chunks);
  prompt.row_begin = inputs_.chunk_row_begin;
  prompt.rows_max = body_.count - step_.decode_rows;
  prompt.tiles = ws_.prompt_tiles;
  prompt.counters = ws_.prompt_counters;
  return CudaStatus(kernels::cuda::PlanPromptAttention(prompt, stream_), "prompt attention's plan");
}

absl::Status CudaOps::PlanDecode(uint32_t group) {
  kernels::cuda::DecodeScheduleParams schedule;
  schedule.context_lengths = inputs_.context_lengths;
  schedule.sequences = step_.decode_rows;
  schedule.kv_heads = shape_.kv_heads;
  schedule.group_max = limits_.group_max;
  schedule.window = kv_.WindowOf(group);
  schedule.grid = limits_.decode_grid;
  schedule.schedule = ws_.decode_schedules[group];
  schedule.tables = TablesOf(group, 0);
  schedule.dependent = true;
  return CudaStatus(kernels::cuda::MakeDecodeSchedule(schedule, stream_), "decode schedule");
}

kernels::cuda::BlockTables CudaOps::TablesOf(uint32_t group, uint32_t first_sequence) const {
  const uint32_t stride = limits_.blocks_per_sequence();
  const size_t first_table = size_t{group} * step_.sequences() + first_sequence;
  return {ws_.block_tables + first_table * stride, stride};
}

kernels::cuda::RotateAndAppendParams CudaOps::HeadsOf(const PlanOp& op, const Rows& rows) const {
  kernels::cuda::RotateAndAppendParams params;
  params.qkv = ws_.qkv;
  params.qkv_stride = shape_.qkv_columns();
  if (op.adds_bias) params.bias = weights_.layer(op.layer).qkv_bias;
  if (op.norms_heads) {
    const CudaLayer& layer = weights_.layer(op.layer);
    params.head_norm = {layer.query_norm, layer.key_norm, spec_.norm_weight_offset,
                        spec_.norm_epsilon};
  }
  params.query_heads = shape_.query_heads;
  const uint32_t kind = spec_.KindOf(op.layer);
  params.rotary = ws_.rotary[spec_.RopeKind(kind)];
  params.rotary_dim = spec_.attention_kinds[kind].rope.dims;
  params.positions = inputs_.positions;
  params.sequences = inputs_.row_sequences;
  params.query = ws_.qkv;
  params.query_stride = shape_.qkv_columns();
  params.kv = kv_.Layer(op.layer);
  params.tables = TablesOf(kv_.GroupOf(op.layer), 0);
  params.rows = rows.count;
  params.type = shape_.type;
  return params;
}

absl::Status CudaOps::Clip(const PlanOp& op, const Rows& rows) {
  return CudaStatus(kernels::cuda::Clip({ws_.qkv, uint64_t{rows.count} * shape_.qkv_columns(),
                                         spec_.qkv_clip, shape_.type, !op.after_collective},
                                        stream_),
                    "clip of query, key and value");
}

absl::Status CudaOps::NormalizeHeads(const PlanOp& op, const Rows& rows) {
  kernels::cuda::NormHeadsParams params;
  params.qkv = ws_.qkv;
  params.row_stride = shape_.qkv_columns();
  params.query_norm = weights_.layer(op.layer).query_norm;
  params.key_norm = weights_.layer(op.layer).key_norm;
  params.weight_offset = spec_.norm_weight_offset;
  params.query_heads = shape_.query_heads;
  params.kv_heads = shape_.kv_heads;
  params.head_dim = shape_.head_dim;
  params.head_stride = shape_.head_stride;
  params.rows = rows.count;
  params.epsilon = spec_.norm_epsilon;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::NormHeads(params, stream_), "norm of heads");
}

absl::Status CudaOps::RotateAndAppend(const PlanOp& op, const Rows& rows) {
  kernels::cuda::RotateAndAppendParams params = HeadsOf(op, rows);
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::RotateAndAppend(params, stream_), "rotary");
}

kernels::cuda::AttentionParams CudaOps::AttentionOf(uint32_t layer, uint32_t first_sequence,
                                                    uint32_t sequences) const {
  kernels::cuda::AttentionParams params;
  params.query = ws_.qkv;
  params.query_stride = shape_.qkv_columns();
  params.query_heads = shape_.query_heads;
  params.kv = kv_.Layer(layer);
  params.tables = TablesOf(kv_.GroupOf(layer), first_sequence);
  params.context_lengths = inputs_.context_lengths + first_sequence;
  params.sequences = sequences;
  params.kv_head_begin = ws_.kv_head_begin;
  params.group_max = limits_.group_max;
  params.scale = spec_.attention_scale;
  params.soft_cap = spec_.attention_soft_cap;
  params.window = spec_.attention(layer).window_tokens;
  if (spec_.position == PositionKind::kAlibi) params.alibi_slopes = ws_.alibi_slopes;
  params.out = ws_.attention;
  params.type = shape_.type;
  return params;
}

absl::Status CudaOps::AttendDecode(const PlanOp& op) {
  kernels::cuda::DecodeAttentionParams params;
  params.attention = AttentionOf(op.layer, 0, step_.decode_rows);
  params.schedule = ws_.decode_schedules[kv_.GroupOf(op.layer)];
  params.grid = limits_.decode_grid;
  params.sinks = SinksOf(op.layer);
  params.workspace = ws_.decode_partials;
  params.workspace_bytes = ws_.decode_partials_bytes;
  params.dependent = !op.after_collective;
  // Decode rows come first, and nobody writes into their sequences but their own last position. The
  // schedule and all keys before were complete when the embedding began.
  params.after_append = params.dependent;
  return CudaStatus(kernels::cuda::DecodeAttention(params, stream_), "decode attention");
}

absl::Status CudaOps::AttendChunks(const PlanOp& op) {
  kernels::cuda::PromptAttentionParams params;
  params.attention = AttentionOf(op.layer, step_.decode_rows, step_.chunks);
  params.row_begin = inputs_.chunk_row_begin;
  params.rows_max = step_.rows - step_.decode_rows;
  params.tiles = ws_.prompt_tiles;
  params.counters = ws_.prompt_counters;
  params.tensor_maps = kv_.TensorMaps(op.layer);
  params.sinks = SinksOf(op.layer);
  return CudaStatus(kernels::cuda::PromptAttention(params, stream_), "prompt attention");
}

absl::Status CudaOps::Attend(const PlanOp& op) {
  if (!attended_) {
    if (shape_.latent) {
      WEFT_RETURN_IF_ERROR(AttendLatent(op));
    } else {
      if (step_.decode_rows > 0) WEFT_RETURN_IF_ERROR(AttendDecode(op));
      if (step_.chunks > 0) WEFT_RETURN_IF_ERROR(AttendChunks(op));
    }
  }
  if (!op.keeps_sampled || step_.decode_only()) return absl::OkStatus();
  attended_ = true;
  return KeepRows();
}

absl::Status CudaOps::KeepRows() {
  const uint64_t hidden_bytes = uint64_t{shape_.hidden} * sizeof(float);
  const uint32_t attention_bytes = shape_.attention_columns() * BytesOf(shape_.type);
  WEFT_RETURN_IF_ERROR(CudaStatus(
      kernels::cuda::GatherRows({body_.residual, hidden_bytes, kept_rows_, tail_.residual,
                                 tail_.count, static_cast<uint32_t>(hidden_bytes)},
                                stream_),
      "rows that are kept"));
  return CudaStatus(kernels::cuda::GatherRows({body_.attention, attention_bytes, kept_rows_,
                                               tail_.attention, tail_.count, attention_bytes},
                                              stream_),
                    "rows that are kept");
}

}  // namespace weft::shard
