// The half of CudaOps that multiplies: norms, matrix products, activations and sums over ranks.

#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/heads.h"
#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/elementwise/rows.h"
#include "shard/device/cuda/ops.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using kernels::cuda::GemvEpilogue;
using kernels::cuda::GemvNext;

GemvEpilogue KernelEpilogue(Epilogue epilogue, bool gated) {
  switch (epilogue) {
    case Epilogue::kStore:
      return GemvEpilogue::kStore;
    case Epilogue::kAddToOut:
      return GemvEpilogue::kAccumulate;
    case Epilogue::kActivate:
      return gated ? GemvEpilogue::kGated : GemvEpilogue::kActivated;
    case Epilogue::kRotateAppend:
      return GemvEpilogue::kRotateAppend;
  }
  return GemvEpilogue::kStore;
}

}  // namespace

kernels::cuda::ActivationKind CudaOps::ActivationOfMlps() const {
  switch (spec_.activation) {
    case Activation::kSilu:
      return kernels::cuda::ActivationKind::kSilu;
    case Activation::kGeluErf:
      return kernels::cuda::ActivationKind::kGeluErf;
    case Activation::kGeluTanh:
      return kernels::cuda::ActivationKind::kGeluTanh;
    case Activation::kRelu:
      return kernels::cuda::ActivationKind::kRelu;
    case Activation::kClampedSwiglu:
      return kernels::cuda::ActivationKind::kClampedSwiglu;
  }
  return kernels::cuda::ActivationKind::kSilu;
}

CudaOps::MatrixOnDevice CudaOps::MatrixOutside(Matrix matrix) const {
  if (matrix == Matrix::kProjectIn) {
    return {weights_.project_in(), nullptr, shape_.hidden, shape_.embedding};
  }
  if (matrix == Matrix::kProjectOut) {
    return {weights_.project_out(), nullptr, shape_.embedding, shape_.hidden};
  }
  return {weights_.head(), weights_.head_bias(), shape_.vocab, shape_.embedding};
}

CudaOps::MatrixOnDevice CudaOps::MatrixOf(Matrix matrix, uint32_t layer) const {
  if (!IsOfLayer(matrix)) return MatrixOutside(matrix);
  const CudaLayer& weights = weights_.layer(layer);
  const bool experts = spec_.HasExperts(layer);
  switch (matrix) {
    case Matrix::kQkv:
      return {weights.qkv, weights.qkv_bias, shape_.qkv_columns(), shape_.hidden};
    case Matrix::kOutput:
      return {weights.output, weights.output_bias, shape_.hidden, shape_.output_columns()};
    case Matrix::kQueryDown:
      return {weights.query_down, nullptr, shape_.query_rank, shape_.hidden};
    case Matrix::kQuery:
      return {weights.query, nullptr, shape_.query_heads * shape_.query_dim,
              shape_.query_rank > 0 ? shape_.query_rank : shape_.hidden};
    case Matrix::kLatent:
      return {weights.latent, nullptr, shape_.head_dim, shape_.hidden};
    // Of each head.
    case Matrix::kKeyUp:
      return {weights.key_up, nullptr, shape_.attention_dim, shape_.plain_dim};
    case Matrix::kValueUp:
      return {weights.value_up, nullptr, shape_.output_dim, shape_.attention_dim};
    case Matrix::kGateUp:
      if (experts) return {weights.gate_up, nullptr, 2 * shape_.shared_mlp, shape_.hidden};
      return {weights.gate_up, weights.gate_up_bias, shape_.gate_up_columns(), shape_.hidden};
    case Matrix::kDown:
      if (experts) return {weights.down, nullptr, shape_.hidden, shape_.shared_mlp};
      return {weights.down, weights.down_bias, shape_.hidden, shape_.mlp};
    case Matrix::kRouter:
      return {weights.router, weights.router_bias, shape_.router_rows, shape_.hidden};
    case Matrix::kExpertGateUp:
      return {weights.expert_gate_up, weights.expert_gate_up_bias, 2 * shape_.expert_mlp,
              shape_.hidden};
    case Matrix::kExpertDown:
      return {weights.expert_down, weights.expert_down_bias, shape_.hidden, shape_.expert_mlp};
    case Matrix::kExperts:
    case Matrix::kLatents:
    case Matrix::kNone:
    case Matrix::kHead:
    case Matrix::kProjectIn:
    case Matrix::kProjectOut:
      break;
  }
  return {};
}

CudaNorm CudaOps::WeightsOf(Norm norm, uint32_t layer) const {
  switch (norm) {
    case Norm::kEmbedding:
      return weights_.embedding_norm();
    case Norm::kAttention:
      return weights_.layer(layer).attention_norm;
    case Norm::kPostAttention:
      return weights_.layer(layer).post_attention_norm;
    case Norm::kMlp:
      return weights_.layer(layer).mlp_norm;
    case Norm::kPostMlp:
      return weights_.layer(layer).post_mlp_norm;
    case Norm::kQueryLatent:
      return {weights_.layer(layer).query_latent_norm, nullptr};
    case Norm::kLatent:
      return {weights_.layer(layer).latent_norm, nullptr};
    case Norm::kFinal:
    case Norm::kNone:
      break;
  }
  return weights_.final_norm();
}

void* CudaOps::At(Buffer buffer, const Rows& rows, Matrix matrix) const {
  switch (buffer) {
    case Buffer::kResidual:
      return rows.residual;
    case Buffer::kEmbedded:
      return ws_.embedded;
    case Buffer::kNormed:
      return ws_.normed;
    case Buffer::kQkv:
      return ws_.qkv;
    case Buffer::kAttention:
      return rows.attention;
    case Buffer::kQueryLatent:
      return ws_.query_latent;
    case Buffer::kHeadQuery:
      return ws_.head_query;
    case Buffer::kLatent:
      return ws_.latent;
    case Buffer::kHeadValue:
      return ws_.head_value;
    case Buffer::kGateUp:
      return ws_.gate_up;
    case Buffer::kMlp:
      return ws_.mlp;
    case Buffer::kPartial:
      return ws_.partial;
    case Buffer::kPeerPartial:
      // Two buffers in turn (kernels/cuda/comm/all_reduce.h).
      return peer_sum_->Partial(matrix == Matrix::kDown ? 1 : 0);
    case Buffer::kLogits:
      return ws_.logits;
    case Buffer::kRoutes:
      return ws_.routes;
    case Buffer::kExpertGateUp:
      return ws_.expert_gate_up;
    case Buffer::kExpertMlp:
      return ws_.expert_mlp;
    case Buffer::kExpertOut:
      return ws_.expert_out;
    case Buffer::kNone:
      break;
  }
  WEFT_CHECK(false);
  return nullptr;
}

DType CudaOps::TypeOf(Buffer buffer) const {
  const bool wide = buffer == Buffer::kResidual || buffer == Buffer::kEmbedded ||
                    buffer == Buffer::kLogits || buffer == Buffer::kRoutes;
  return wide ? DType::kFloat32 : shape_.type;
}

kernels::cuda::NormParams CudaOps::NormOf(const PlanOp& op, const Rows& rows) const {
  const CudaNorm weights = WeightsOf(op.norm, op.layer);
  kernels::cuda::NormParams params;
  params.residual = rows.residual;
  params.weight = weights.weight;
  params.weight_offset = spec_.norm_weight_offset;
  params.bias = weights.bias;
  params.rows = rows.count;
  params.hidden = shape_.hidden;
  params.epsilon = spec_.norm_epsilon;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return params;
}

absl::Status CudaOps::Normalize(const PlanOp& op, const Rows& rows) {
  kernels::cuda::NormParams params = NormOf(op, rows);
  if (op.adds_to_residual) params.delta = At(op.in, rows, Matrix::kNone);
  params.out = ws_.normed;
  const bool rms = spec_.norm == NormKind::kRmsNorm;
  return CudaStatus(
      rms ? kernels::cuda::RmsNorm(params, stream_) : kernels::cuda::LayerNorm(params, stream_),
      "norm");
}

absl::Status CudaOps::NormalizeResidual(const PlanOp& op, const Rows& rows) {
  const kernels::cuda::NormParams params = NormOf(op, rows);
  const bool rms = spec_.norm == NormKind::kRmsNorm;
  return CudaStatus(rms ? kernels::cuda::RmsNormInPlace(params, stream_)
                        : kernels::cuda::LayerNormInPlace(params, stream_),
                    "norm of the residual");
}

absl::Status CudaOps::Round(const PlanOp& op, const Rows& rows) {
  const auto* const in = static_cast<const float*>(At(op.in, rows, Matrix::kNone));
  return CudaStatus(kernels::cuda::RoundElements({in, At(op.out, rows, Matrix::kNone),
                                                  uint64_t{rows.count} * ColumnsOf(op.in),
                                                  shape_.type, !op.after_collective},
                                                 stream_),
                    "rounding");
}

// The rows count as one query head each.
absl::Status CudaOps::NormalizePartial(const PlanOp& op, const Rows& rows) {
  kernels::cuda::NormHeadsParams params;
  params.qkv = At(op.out, rows, Matrix::kNone);
  params.row_stride = shape_.hidden;
  params.query_norm = WeightsOf(op.norm, op.layer).weight;
  params.weight_offset = spec_.norm_weight_offset;
  params.query_heads = 1;
  params.head_dim = shape_.hidden;
  params.head_stride = shape_.hidden;
  params.rows = rows.count;
  params.epsilon = spec_.norm_epsilon;
  params.type = shape_.type;
  params.dependent = !op.after_collective;
  return CudaStatus(kernels::cuda::NormHeads(params, stream_), "norm of what is to be added");
}

absl::Status CudaOps::CapLogits() {
  return CudaStatus(
      kernels::cuda::CapLogits(
          {ws_.logits, uint64_t{tail_.count} * shape_.vocab, spec_.logit_soft_cap}, stream_),
      "cap of logits");
}

absl::Status CudaOps::AddResidual(const PlanOp& op, const Rows& rows) {
  return CudaStatus(kernels::cuda::AddToResidual(
                        {rows.residual, At(op.in, rows, Matrix::kNone),
                         uint64_t{rows.count} * shape_.hidden, shape_.type, !op.after_collective},
                        stream_),
                    "sum with the residual");
}

absl::Status CudaOps::Multiply(const PlanOp& op, const Rows& rows) {
  const MatrixOnDevice matrix = MatrixOf(op.matrix, op.layer);
  return gemm_->Run({rows.count, matrix.outputs, matrix.inputs, shape_.type, TypeOf(op.out),
                     op.epilogue == Epilogue::kAddToOut},
                    At(op.in, rows, op.matrix), matrix.weight, At(op.out, rows, op.matrix),
                    stream_);
}

GemvNext CudaOps::NextOf(const PlanOp& op) const {
  if (op.next_matrix == Matrix::kNone) return {};
  const MatrixOnDevice matrix = MatrixOf(op.next_matrix, op.next_layer);
  return {matrix.weight, KernelEpilogue(op.next_epilogue, shape_.gated_mlp), matrix.outputs,
          matrix.inputs, shape_.head_stride};
}

absl::Status CudaOps::MultiplyFewRows(const PlanOp& op, const Rows& rows) {
  const MatrixOnDevice matrix = MatrixOf(op.matrix, op.layer);
  kernels::cuda::GemvParams params;
  params.weight = matrix.weight;
  params.epilogue = KernelEpilogue(op.epilogue, shape_.gated_mlp);
  params.activation = ActivationOfMlps();
  if (op.adds_bias && op.epilogue != Epilogue::kRotateAppend && AddsBias(op.matrix, slice_.rank)) {
    params.bias = matrix.bias;
  }
  params.n = matrix.outputs;
  params.k = matrix.inputs;
  if (op.epilogue == Epilogue::kRotateAppend) params.heads = HeadsOf(op, rows);
  if (op.norm == Norm::kNone) {
    params.in = At(op.in, rows, op.matrix);
  } else {
    const CudaNorm norm = WeightsOf(op.norm, op.layer);
    params.residual_in = rows.residual;
    params.norm_weight = norm.weight;
    params.layer_norm = spec_.norm == NormKind::kLayerNorm;
    params.norm_bias = norm.bias;
    params.epsilon = spec_.norm_epsilon;
  }
  params.out = At(op.out, rows, op.matrix);
  const bool gated = params.epilogue == GemvEpilogue::kGated;
  params.out_stride = gated ? matrix.outputs / 2 : matrix.outputs;
  params.out_type = TypeOf(op.out);
  params.rows = rows.count;
  params.dependent = !op.after_collective;
  params.workspace = ws_.gemv;
  params.next = NextOf(op);
  return CudaStatus(kernels::cuda::Gemv(params, stream_), "product of few rows");
}

absl::Status CudaOps::AddBias(const PlanOp& op, const Rows& rows) {
  if (!AddsBias(op.matrix, slice_.rank)) return absl::OkStatus();
  const MatrixOnDevice matrix = MatrixOf(op.matrix, op.layer);
  return CudaStatus(
      kernels::cuda::AddBias({At(op.out, rows, op.matrix), matrix.bias, rows.count, matrix.outputs,
                              TypeOf(op.out), shape_.type, !op.after_collective},
                             stream_),
      "bias");
}

absl::Status CudaOps::Activate(const PlanOp& op, const Rows& rows) {
  const bool experts = op.in == Buffer::kExpertGateUp;
  const auto fill = [&](auto params) {
    params.in = At(op.in, rows, Matrix::kNone);
    params.out = At(op.out, rows, Matrix::kNone);
    params.rows = experts ? rows.count * shape_.experts_per_token : rows.count;
    params.columns = MatrixOf(op.feeds, op.layer).inputs;
    params.kind = ActivationOfMlps();
    params.type = shape_.type;
    params.dependent = !op.after_collective;
    return params;
  };
  if (shape_.gated_mlp) {
    auto params = fill(kernels::cuda::GatedActivationParams());
    params.limit = spec_.activation_limit;
    return CudaStatus(kernels::cuda::GatedActivation(params, stream_), "gated activation");
  }
  return CudaStatus(kernels::cuda::Activation(fill(kernels::cuda::ActivationParams()), stream_),
                    "activation");
}

absl::Status CudaOps::SumRanks(const PlanOp& op, const Rows& rows) {
  if (op.way == Way::kPlain) {
    return communicator_->AllReduce(At(op.in, rows, op.matrix),
                                    uint64_t{rows.count} * ColumnsOf(op.in), TypeOf(op.in),
                                    stream_);
  }
  kernels::cuda::AllReduceParams params;
  params.residual = rows.residual;
  const CudaNorm norm = WeightsOf(op.norm, op.layer);
  params.weight = norm.weight;
  params.layer_norm = spec_.norm == NormKind::kLayerNorm;
  params.bias = norm.bias;
  params.out = ws_.normed;
  params.rows = rows.count;
  params.epsilon = spec_.norm_epsilon;
  params.dependent = !op.after_collective;
  return CudaStatus(peer_sum_->AddNorm(op.matrix == Matrix::kDown ? 1 : 0, params, stream_),
                    "sum over ranks");
}

absl::Status CudaOps::GatherLogits() {
  const uint32_t rows = tail_.count;
  WEFT_RETURN_IF_ERROR(
      communicator_->AllGather(ws_.logits, uint64_t{rows} * shape_.vocab, ws_.gathered, stream_));
  return CudaStatus(
      kernels::cuda::JoinSlices({ws_.gathered, shape_.vocab, ws_.vocab_begin, slice_.world, rows,
                                 ws_.joined, CudaWorkspace::VocabStride(limits_)},
                                stream_),
      "logits of all ranks");
}

}  // namespace weft::shard
