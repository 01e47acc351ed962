// The half of CpuOps that multiplies: prepared inputs, matrix products, biases, activations and
// sums over ranks.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "shard/device/cpu/ops.h"

namespace weft::shard {
namespace {

using kernels::cpu::Activations;
using kernels::cpu::ActivationType;
using kernels::cpu::kTileOutputs;
using kernels::cpu::TileCount;

// From this many rows on, items are as small as the kernel likes: a pair of tiles.
constexpr uint32_t kManyRows = 16;
// Items of a region of few rows, per thread: small enough to share evenly, large enough to keep the
// counter cheap.
constexpr int64_t kItemsPerThread = 5;

kernels::cpu::Activation KernelActivation(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::cpu::Activation::kSilu;
    case Activation::kGeluErf:
      return kernels::cpu::Activation::kGeluErf;
    case Activation::kGeluTanh:
      return kernels::cpu::Activation::kGeluTanh;
    case Activation::kRelu:
      return kernels::cpu::Activation::kRelu;
    case Activation::kClampedSwiglu:
      break;  // of two numbers at once (CpuOps::ActivateRange)
  }
  return kernels::cpu::Activation::kSilu;
}

}  // namespace

CpuOps::MatrixGroup CpuOps::MatricesOf(Matrix matrix, uint32_t layer) const {
  if (matrix == Matrix::kHead) return {{&weights_.head()}, 1};
  if (matrix == Matrix::kProjectIn) return {{&weights_.project_in()}, 1};
  if (matrix == Matrix::kProjectOut) return {{&weights_.project_out()}, 1};
  const CpuLayer& weights = weights_.layer(layer);
  switch (matrix) {
    case Matrix::kQkv:
      return {{&weights.query, &weights.key, &weights.value}, 3};
    case Matrix::kOutput:
      return {{&weights.output}, 1};
    case Matrix::kQueryDown:
      return {{&weights.query_down}, 1};
    case Matrix::kQuery:
      return {{&weights.query}, 1};
    case Matrix::kLatent:
      return {{&weights.latent}, 1};
    case Matrix::kLatents:
      if (spec_.latent.query_rank > 0) return {{&weights.latent, &weights.query_down}, 2};
      return {{&weights.latent, &weights.query}, 2};
    case Matrix::kKeyUp:
    case Matrix::kValueUp:
      break;  // a matrix for each head (CpuOps::MultiplyByHead)
    case Matrix::kGateUp:
      if (!spec_.gated_mlp) return {{&weights.up}, 1};
      return {{&weights.gate, &weights.up}, 2};
    case Matrix::kDown:
      return {{&weights.down}, 1};
    case Matrix::kRouter:
      return {{&weights.router}, 1};
    case Matrix::kExpertGateUp:
      return {{&weights.experts[0].gate, &weights.experts[0].up}, 2};
    case Matrix::kExpertDown:
      return {{&weights.experts[0].down}, 1};
    case Matrix::kExperts:
      return ReadersOfExperts(weights);
    case Matrix::kNone:
    case Matrix::kHead:
    case Matrix::kProjectIn:
    case Matrix::kProjectOut:
      break;
  }
  return {};
}

// All experts of a layer have their matrices in the types of the first (cpu/served.h).
CpuOps::MatrixGroup CpuOps::ReadersOfExperts(const CpuLayer& weights) const {
  MatrixGroup group{{&weights.router, &weights.experts[0].gate, &weights.experts[0].up}, 3};
  if (spec_.experts.shared_hidden == 0) return group;
  group.matrices[group.count++] = &weights.gate;
  group.matrices[group.count++] = &weights.up;
  if (spec_.experts.shared_scale) group.matrices[group.count++] = &weights.shared_scale;
  return group;
}

ActivationType CpuOps::InputType(const CpuMatrix& matrix) const {
  return kernels::cpu::ActivationFor(matrix.packed.type, activation_);
}

Activations CpuOps::Input(Buffer buffer, ActivationType type, int64_t inputs) const {
  return View(buffer == Buffer::kNormed ? ws_.normed : ws_.made, type, rows_.rows(), inputs);
}

Activations CpuOps::View(const Workspace::Prepared& prepared, ActivationType type, int64_t rows,
                         int64_t inputs) {
  Activations input;
  input.type = type;
  input.rows = rows;
  input.inputs = inputs;
  input.values = prepared.values[static_cast<int>(type)];
  input.block_sums = prepared.block_sums[static_cast<int>(type)];
  return input;
}

void CpuOps::Prepare(Buffer buffer, absl::Span<const CpuMatrix* const> matrices, const float* x,
                     int64_t stride, uint32_t begin, uint32_t end) {
  bool done[2] = {false, false};
  for (const CpuMatrix* matrix : matrices) {
    const ActivationType type = InputType(*matrix);
    if (std::exchange(done[static_cast<int>(type)], true)) continue;
    const Activations rows =
        kernels::cpu::SliceRows(Input(buffer, type, matrix->packed.inputs), begin, end);
    kernels_->prepare_activations(x, stride, 0, end - begin, rows);
  }
}

void CpuOps::PrepareRows(Buffer buffer, const MatrixGroup& readers, const float* x,
                         int64_t stride) {
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    Prepare(buffer, readers.span(), x + begin * stride, stride, begin, end);
  });
}

int64_t CpuOps::ChunkTiles(int64_t tiles, uint32_t rows) const {
  if (rows >= kManyRows) return 2;
  const int64_t items = pool_.threads() == 1 ? 1 : pool_.threads() * kItemsPerThread;
  const int64_t chunk = (tiles + items - 1) / items;
  return (chunk + 1) / 2 * 2;
}

void CpuOps::LinearItem(const LinearPart& part, int64_t tile_begin, int64_t tile_end) {
  const CpuMatrix& matrix = *part.matrix;
  MultiplyTiles(matrix, Input(part.in, InputType(matrix), matrix.packed.inputs), tile_begin,
                tile_end, part.adds_bias, part.out, part.stride);
}

void CpuOps::MultiplyTiles(const CpuMatrix& matrix, const Activations& input, int64_t tile_begin,
                           int64_t tile_end, bool adds_bias, float* out, int64_t stride) {
  const kernels::cpu::PackedMatrix& packed = matrix.packed;
  kernels_->linear(packed, input, tile_begin, tile_end, out, stride);
  if (!adds_bias) return;
  const int64_t begin = tile_begin * kTileOutputs;
  const int64_t count = std::min(tile_end * kTileOutputs, packed.outputs) - begin;
  for (int64_t row = 0; row < input.rows; ++row) {
    float* const sums = out + row * stride + begin;
    kernels_->add(sums, matrix.bias.data() + begin, count, sums);
  }
}

void CpuOps::RunLinear(absl::Span<const LinearPart> parts, const Finish* finish) {
  int64_t tiles = 0;
  for (const LinearPart& part : parts) tiles += TileCount(part.matrix->packed.outputs);
  const int64_t chunk = ChunkTiles(tiles, rows_.rows());
  uint32_t items = 0;
  for (const LinearPart& part : parts) {
    items += static_cast<uint32_t>((TileCount(part.matrix->packed.outputs) + chunk - 1) / chunk);
  }
  pool_.Run(items, [&](uint32_t item, int) {
    int64_t index = item;
    for (const LinearPart& part : parts) {
      const int64_t part_tiles = TileCount(part.matrix->packed.outputs);
      const int64_t part_items = (part_tiles + chunk - 1) / chunk;
      if (index >= part_items) {
        index -= part_items;
        continue;
      }
      const int64_t begin = index * chunk;
      const int64_t end = std::min(part_tiles, begin + chunk);
      LinearItem(part, begin, end);
      if (finish != nullptr) {
        (*finish)(begin * kTileOutputs, std::min(end * kTileOutputs, part.matrix->packed.outputs));
      }
      return;
    }
  });
}

void CpuOps::CountPass(absl::Span<const LinearPart> parts) {
  for (const LinearPart& part : parts) {
    step_weight_tiles_ += static_cast<uint64_t>(TileCount(part.matrix->packed.outputs));
  }
}

uint32_t CpuOps::WeightPasses() const {
  // Rounded up: the last layer is left early when nothing samples.
  return static_cast<uint32_t>((step_weight_tiles_ + layer_weight_tiles_ - 1) /
                               layer_weight_tiles_);
}

absl::Span<const CpuOps::LinearPart> CpuOps::LinearParts(const PlanOp& op, float* out,
                                                         bool adds_bias) {
  const MatrixGroup group = MatricesOf(op.matrix, op.layer);
  linear_parts_.clear();
  if (op.matrix == Matrix::kGateUp) {
    float* const outs[] = {ws_.gate, ws_.up};
    for (size_t i = 0; i < group.count; ++i) {
      const CpuMatrix* const matrix = group.matrices[i];
      linear_parts_.push_back({matrix, op.in, outs[i], matrix->packed.outputs, adds_bias});
    }
    return linear_parts_;
  }
  // Side by side in one row.
  int64_t stride = 0;
  for (const CpuMatrix* const matrix : group.span()) stride += matrix->packed.outputs;
  for (const CpuMatrix* const matrix : group.span()) {
    linear_parts_.push_back({matrix, op.in, out, stride, adds_bias});
    out += matrix->packed.outputs;
  }
  return linear_parts_;
}

void CpuOps::RunProduct(const PlanOp& op) {
  const bool adds = op.epilogue == Epilogue::kAddToOut;
  const absl::Span<const LinearPart> parts = LinearParts(
      op, At(adds ? Buffer::kPartial : op.out), op.adds_bias && AddsBias(op.matrix, slice_.rank));
  if (IsOfLayer(op.matrix)) CountPass(parts);
  if (op.epilogue == Epilogue::kActivate) return RunActivatedProduct(op, parts);
  if (!adds) return RunLinear(parts, nullptr);
  const int64_t hidden = spec_.hidden;
  auto add = [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows_.rows(); ++row) {
      float* const target = ws_.residual + row * hidden + begin;
      kernels_->add(target, ws_.partial + row * hidden + begin, end - begin, target);
    }
  };
  const Finish finish(add);
  RunLinear(parts, &finish);
}

void CpuOps::ActivateRange(float* gate, const float* up, int64_t count) const {
  if (spec_.gated_mlp && spec_.activation == Activation::kSilu) {
    kernels_->silu_multiply(gate, up, count, gate);
    return;
  }
  if (spec_.activation == Activation::kClampedSwiglu) {
    kernels_->clamped_swiglu(gate, up, spec_.activation_limit, count, gate);
    return;
  }
  kernels_->activate(KernelActivation(spec_.activation), gate, count, gate);
  if (spec_.gated_mlp) kernels_->multiply(gate, up, count, gate);
}

void CpuOps::RunActivatedProduct(const PlanOp& op, absl::Span<const LinearPart> parts) {
  const int64_t columns = parts[0].matrix->packed.outputs;
  const int64_t tiles = TileCount(columns);
  const int64_t chunk = ChunkTiles(tiles, rows_.rows());
  pool_.Run(static_cast<uint32_t>((tiles + chunk - 1) / chunk), [&](uint32_t item, int) {
    const int64_t tile_begin = item * chunk;
    const int64_t tile_end = std::min(tiles, tile_begin + chunk);
    for (const LinearPart& part : parts) LinearItem(part, tile_begin, tile_end);
    const int64_t begin = tile_begin * kTileOutputs;
    const int64_t count = std::min(columns, tile_end * kTileOutputs) - begin;
    for (int64_t row = 0; row < rows_.rows(); ++row) {
      ActivateRange(ws_.gate + row * columns + begin, ws_.up + row * columns + begin, count);
    }
  });
  PrepareRows(op.out, MatricesOf(op.feeds, op.layer), ws_.gate, columns);
}

void CpuOps::AddBias(const PlanOp& op) {
  if (!AddsBias(op.matrix, slice_.rank)) return;
  for (const LinearPart& part : LinearParts(op, At(op.out), false)) {
    for (int64_t row = 0; row < rows_.rows(); ++row) {
      float* const out = part.out + row * part.stride;
      kernels_->add(out, part.matrix->bias.data(), part.matrix->packed.outputs, out);
    }
  }
}

void CpuOps::Activate(const PlanOp& op) {
  if (op.in == Buffer::kExpertGateUp) return ActivateExperts(op);
  const int64_t columns = MatricesOf(op.feeds, op.layer).matrices[0]->packed.inputs;
  ActivateRange(ws_.gate, ws_.up, rows_.rows() * columns);
  PrepareRows(op.out, MatricesOf(op.feeds, op.layer), ws_.gate, columns);
}

absl::Status CpuOps::SumRanks(const PlanOp& op) {
  const int64_t count = int64_t{rows_.rows()} * ColumnsOf(op.out);
  // Partial sums lie where the other ranks read them, and what is made of them here.
  float* const target = op.out == Buffer::kPartial ? ws_.partial : At(op.out);
  if (!op.adds_to_residual) std::fill_n(target, count, 0.0f);
  return communicator_->AllReduceAdd(target, count);
}

void CpuOps::AddResidual() {
  kernels_->add(ws_.residual, ws_.partial, int64_t{rows_.rows()} * spec_.hidden, ws_.residual);
}

}  // namespace weft::shard
