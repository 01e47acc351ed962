// The part of CudaOps that is latent attention's own (shard/model/latent_spec.h). Launches depend
// on the number of rows alone, so that they can be captured.

#include "common/status.h"
#include "kernels/cuda/attention/latent_attention.h"
#include "kernels/cuda/elementwise/heads.h"
#include "kernels/cuda/elementwise/latent_heads.h"
#include "shard/device/cuda/ops.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

// A latent counts as one query head.
absl::Status CudaOps::NormalizeLatent(const PlanOp& op, const Rows& rows) {
  const bool query = op.norm == Norm::kQueryLatent;
  kernels::cuda::NormHeadsParams params;
  params.qkv = At(op.out, rows, Matrix::kNone);
  params.row_stride = query ? shape_.query_rank : shape_.head_stride;
  params.query_norm = WeightsOf(op.norm, op.layer).weight;
  params.weight_offset = spec_.norm_weight_offset;
  params.query_heads = 1;
  params.head_dim = query ? shape_.query_rank : shape_.attention_dim;
  params.head_stride = params.head_dim;
  params.rows = rows.count;
  params.epsilon = spec_.latent.norm_epsilon;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::NormHeads(params, stream_), "norm of a latent");
}

absl::Status CudaOps::MultiplyByHead(const PlanOp& op, const Rows& rows) {
  const MatrixOnDevice matrix = MatrixOf(op.matrix, op.layer);
  const bool keys = op.matrix == Matrix::kKeyUp;
  kernels::cuda::HeadProductParams params;
  params.in = At(op.in, rows, op.matrix);
  params.in_dim = keys ? shape_.query_dim : shape_.attention_dim;
  params.weight = matrix.weight;
  params.out = At(op.out, rows, op.matrix);
  params.out_dim = keys ? shape_.head_stride : shape_.output_dim;
  params.rows = rows.count;
  params.heads = shape_.query_heads;
  params.inputs = matrix.inputs;
  params.outputs = matrix.outputs;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::HeadProduct(params, stream_), "product by head");
}

absl::Status CudaOps::RotateAndAppendLatent(const PlanOp& op, const Rows& rows) {
  const uint32_t kind = spec_.KindOf(op.layer);
  kernels::cuda::RotateLatentParams params;
  params.in = At(op.in, rows, Matrix::kNone);
  params.in_dim = shape_.query_dim;
  params.query = ws_.qkv;
  params.query_heads = shape_.query_heads;
  params.latent = ws_.latent;
  params.rotary = ws_.rotary[spec_.RopeKind(kind)];
  params.rotary_dim = spec_.attention_kinds[kind].rope.dims;
  params.positions = inputs_.positions;
  params.sequences = inputs_.row_sequences;
  params.kv = kv_.Layer(op.layer);
  params.tables = TablesOf(kv_.GroupOf(op.layer), 0);
  params.rows = rows.count;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::RotateLatent(params, stream_), "rotary of latents");
}

absl::Status CudaOps::AttendLatent(const PlanOp& op) {
  kernels::cuda::LatentAttentionParams params;
  params.query = ws_.qkv;
  params.query_heads = shape_.query_heads;
  params.kv = kv_.Layer(op.layer);
  params.tables = TablesOf(kv_.GroupOf(op.layer), 0);
  params.positions = inputs_.positions;
  params.sequences = inputs_.row_sequences;
  params.rows = step_.rows;
  params.value_dim = shape_.attention_dim;
  params.scale = spec_.attention_scale;
  params.out = ws_.attention;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::LatentAttention(params, stream_), "attention over latents");
}

}  // namespace weft::shard
