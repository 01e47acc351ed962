// The half of CudaOps that multiplies: norms, matrix products, activations and sums over ranks,
// apart or in one kernel where a step has few rows.

#include <utility>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rows.h"
#include "shard/device/cuda/ops.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using kernels::cuda::GemvEpilogue;
using kernels::cuda::GemvNext;

// Up to so many rows a product with norm, activation and residual sum in it is faster than cuBLASLt
// and kernels of their own for those (docs/PERFORMANCE.md).
constexpr uint32_t kGemvRows = 4;

}  // namespace

void CudaOps::Normalize(Norm norm, uint32_t layer) {
  if (failed()) return;
  const void* weight = weights_.final_norm();
  if (norm != Norm::kFinal) {
    const CudaLayer& weights = weights_.layer(layer);
    weight = norm == Norm::kAttention ? weights.attention_norm : weights.mlp_norm;
  }
  if (slice_.world == 1 && UsesGemv() && !HasMlpBias(norm, layer)) {
    // The product that reads it computes it.
    pending_norm_ = weight;
    return;
  }
  if (pending_sum_.has_value()) return AddPeers(weight);
  kernels::cuda::NormParams params;
  if (partial_pending_) params.delta = ws_.partial;
  partial_pending_ = false;
  params.residual = residual_;
  params.weight = weight;
  params.out = ws_.normed;
  params.rows = rows_;
  params.hidden = shape_.hidden;
  params.epsilon = spec_.norm_epsilon;
  params.type = shape_.type;
  params.dependent = Overlaps();
  Check(kernels::cuda::RmsNorm(params, stream_), "norm");
}

void CudaOps::Product(const void* in, const void* weight, uint32_t n, uint32_t k, void* out,
                      DType out_type, bool accumulate) {
  if (failed()) return;
  Check(gemm_->Run({rows_, n, k, shape_.type, out_type, accumulate}, in, weight, out, stream_));
}

void CudaOps::AddBias(void* rows, const void* bias, uint32_t columns, DType type) {
  if (failed() || bias == nullptr) return;
  Check(kernels::cuda::AddBias({rows, bias, rows_, columns, type, shape_.type}, stream_), "bias");
}

bool CudaOps::UsesGemv() const {
  return shape_.type == DType::kBfloat16 && rows_ <= kGemvRows && !limits_.deterministic;
}

bool CudaOps::UsesPeerSum() const {
  return peer_sum_ != nullptr && shape_.type == DType::kBfloat16 && rows_ <= PeerSum::kRowsMax;
}

bool CudaOps::HasMlpBias(Norm norm, uint32_t layer) const {
  return norm == Norm::kMlp && weights_.layer(layer).gate_up_bias != nullptr;
}

GemvNext CudaOps::MatrixAt(uint32_t layer, Matrix matrix) const {
  if (layer == shape_.layers) {
    return {weights_.head(), GemvEpilogue::kStore, shape_.vocab, shape_.hidden};
  }
  const CudaLayer& weights = weights_.layer(layer);
  switch (matrix) {
    case Matrix::kQkv:
      return {weights.qkv, AppendsInProduct() ? GemvEpilogue::kRotateAppend : GemvEpilogue::kStore,
              shape_.qkv_columns(), shape_.hidden, shape_.head_stride};
    case Matrix::kOutput:
      return {weights.output, GemvEpilogue::kAccumulate, shape_.hidden, shape_.query_columns()};
    case Matrix::kGateUp:
      return {weights.gate_up, GemvEpilogue::kGatedSilu, 2 * shape_.mlp, shape_.hidden};
    case Matrix::kDown:
      break;
  }
  return {weights.down, GemvEpilogue::kAccumulate, shape_.hidden, shape_.mlp};
}

bool CudaOps::AppendsInProduct() const {
  // As they lie in memory.
  const bool whole_heads = spec_.rope.dims == 0 || spec_.rope.dims == shape_.head_stride;
  return UsesGemv() && whole_heads;
}

void CudaOps::RunGemv(const GemvNext& matrix, const GemvNext& next, const void* in, void* out,
                      DType out_type, const kernels::cuda::RotateAndAppendParams* heads) {
  if (failed()) return;
  kernels::cuda::GemvParams params;
  params.weight = matrix.weight;
  params.epilogue = matrix.epilogue;
  params.n = matrix.n;
  params.k = matrix.k;
  if (heads != nullptr) params.heads = *heads;
  params.in = pending_norm_ == nullptr ? in : nullptr;
  if (pending_norm_ != nullptr) {
    params.residual_in = residual_;
    params.norm_weight = pending_norm_;
    params.epsilon = spec_.norm_epsilon;
  }
  pending_norm_ = nullptr;
  params.out = out;
  params.out_stride = matrix.epilogue == GemvEpilogue::kGatedSilu ? matrix.n / 2 : matrix.n;
  params.out_type = out_type;
  params.rows = rows_;
  params.dependent = Overlaps();
  params.workspace = ws_.gemv;
  params.next = next;
  Check(kernels::cuda::Gemv(params, stream_), "product of few rows");
}

void CudaOps::AddPeers(const void* norm_weight) {
  kernels::cuda::AllReduceParams params;
  params.residual = residual_;
  params.weight = norm_weight;
  params.out = ws_.normed;
  params.rows = rows_;
  params.epsilon = spec_.norm_epsilon;
  params.dependent = Overlaps();
  Check(peer_sum_->AddNorm(*pending_sum_, params, stream_), "sum over ranks");
  pending_sum_.reset();
}

void CudaOps::LinearQkv(uint32_t layer) {
  if (UsesGemv()) {
    const kernels::cuda::RotateAndAppendParams heads = HeadsOf(layer);
    return RunGemv(MatrixAt(layer, Matrix::kQkv), MatrixAt(layer, Matrix::kOutput), ws_.normed,
                   ws_.qkv, shape_.type, &heads);
  }
  Product(ws_.normed, weights_.layer(layer).qkv, shape_.qkv_columns(), shape_.hidden, ws_.qkv,
          shape_.type, false);
}

void CudaOps::AllReduce(void* rows, DType type) {
  if (failed()) return;
  Check(communicator_->AllReduce(rows, uint64_t{rows_} * shape_.hidden, type, stream_));
  no_overlap_ = true;
}

void CudaOps::ProductIntoResidual(const GemvNext& matrix, const GemvNext& next, const void* in,
                                  const void* bias, uint32_t product) {
  if (slice_.world == 1) {
    if (UsesGemv()) {
      RunGemv(matrix, next, in, residual_, DType::kFloat32);
    } else {
      Product(in, matrix.weight, shape_.hidden, matrix.k, residual_, DType::kFloat32, true);
    }
    AddBias(residual_, bias, shape_.hidden, DType::kFloat32);
    return;
  }
  void* const partial = UsesPeerSum() ? peer_sum_->Partial(product) : ws_.partial;
  if (UsesGemv()) {
    GemvNext stored = matrix;
    stored.epilogue = GemvEpilogue::kStore;
    RunGemv(stored, next, in, partial, shape_.type);
  } else {
    Product(in, matrix.weight, shape_.hidden, matrix.k, partial, shape_.type, false);
  }
  // Once, by the first rank.
  if (slice_.rank == 0) AddBias(partial, bias, shape_.hidden, shape_.type);
  // The next norm adds it.
  if (UsesPeerSum()) {
    pending_sum_ = product;
  } else {
    AllReduce(partial, shape_.type);
    partial_pending_ = true;
  }
}

absl::Status CudaOps::LinearOutput(uint32_t layer) {
  ProductIntoResidual(MatrixAt(layer, Matrix::kOutput), MatrixAt(layer, Matrix::kGateUp),
                      attention_, weights_.layer(layer).output_bias, 0);
  return status_;
}

void CudaOps::LinearGatedSilu(uint32_t layer) {
  const CudaLayer& weights = weights_.layer(layer);
  if (UsesGemv() && weights.gate_up_bias == nullptr) {
    return RunGemv(MatrixAt(layer, Matrix::kGateUp), MatrixAt(layer, Matrix::kDown), ws_.normed,
                   ws_.mlp, shape_.type);
  }
  Product(ws_.normed, weights.gate_up, 2 * shape_.mlp, shape_.hidden, ws_.gate_up, shape_.type,
          false);
  AddBias(ws_.gate_up, weights.gate_up_bias, 2 * shape_.mlp, shape_.type);
  if (failed()) return;
  kernels::cuda::GatedActivationParams params;
  params.in = ws_.gate_up;
  params.out = ws_.mlp;
  params.rows = rows_;
  params.columns = shape_.mlp;
  params.type = shape_.type;
  params.dependent = Overlaps();
  Check(kernels::cuda::GatedActivation(params, stream_), "gated activation");
}

absl::Status CudaOps::LinearDown(uint32_t layer) {
  ProductIntoResidual(MatrixAt(layer, Matrix::kDown), MatrixAt(layer + 1, Matrix::kQkv), ws_.mlp,
                      weights_.layer(layer).down_bias, 1);
  return status_;
}

absl::Status CudaOps::LinearHead() {
  if (UsesGemv()) {
    RunGemv(MatrixAt(shape_.layers, Matrix::kQkv), {}, ws_.normed, ws_.logits, DType::kFloat32);
  } else {
    Product(ws_.normed, weights_.head(), shape_.vocab, shape_.hidden, ws_.logits, DType::kFloat32,
            false);
  }
  if (slice_.world > 1) GatherLogits();
  return status_;
}

}  // namespace weft::shard
