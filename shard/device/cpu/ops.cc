#include "shard/device/cpu/ops.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/status.h"
#include "shard/device/cpu/planner.h"

namespace weft::shard {
namespace {

using kernels::cpu::Activations;
using kernels::cpu::ActivationType;
using kernels::cpu::kTileOutputs;
using kernels::cpu::TileCount;

// Rows that one item of a row-wise operation takes at least: about a microsecond of work.
constexpr uint32_t kRowGrain = 8;
// From this many rows on, items are as small as the kernel likes: a pair of tiles.
constexpr uint32_t kManyRows = 16;
// From this many rows on a step computes longer than it reads weights.
constexpr uint32_t kComputingRows = 4;
// Items of a region of few rows, per thread: small enough to share evenly, large enough to keep the
// counter cheap.
constexpr int64_t kItemsPerThread = 5;

}  // namespace

CpuOps::CpuOps(const Parts& parts)
    : spec_(parts.spec),
      slice_(parts.slice),
      weights_(parts.weights),
      ws_(parts.workspace),
      kv_(parts.kv),
      pool_(parts.pool),
      sampler_(parts.sampler),
      activation_(parts.activation),
      query_columns_(int64_t{slice_.heads.size()} * spec_.head_dim),
      kv_columns_(int64_t{slice_.kv_heads.size()} * spec_.head_dim),
      qkv_columns_(query_columns_ + 2 * kv_columns_),
      plan_(MakeCpuPlan(spec_, slice_.world, parts.rules)),
      rows_(parts.limits),
      rotary_(spec_.rope, spec_.context_tokens, ws_.cosines, ws_.sines) {
  sampler_rows_.reserve(parts.limits.running_max);
  linear_parts_.reserve(3);
  heads_begin_.assign(slice_.kv_heads.size() + 1, 0);
  for (uint32_t head = 0; head < slice_.heads.size(); ++head) {
    heads_.push_back(head);
    heads_begin_[slice_.kv_head_of[head] + 1] = head + 1;
  }
  for (uint32_t i = 0; i < spec_.layers; ++i) {
    const CpuLayer& layer = weights_.layer(i);
    for (const CpuMatrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.output,
                                    &layer.gate, &layer.up, &layer.down}) {
      layer_weight_tiles_ += static_cast<uint64_t>(TileCount(matrix->packed.outputs));
    }
  }
}

void CpuOps::BeginEpoch(const kernels::cpu::Kernels& kernels, HostCommunicator& communicator) {
  kernels_ = &kernels;
  communicator_ = &communicator;
}

absl::Status CpuOps::BeginStep(const StepBatch& batch) {
  step_weight_tiles_ = 0;
  WEFT_RETURN_IF_ERROR(rows_.Build(batch, [this](Slot slot) { return sampler_.last_token(slot); }));
  rotary_.Extend(rows_.positions_end());
  pool_.SetWork(rows_.rows() < kComputingRows ? PoolWork::kReading : PoolWork::kComputing);
  return absl::OkStatus();
}

void CpuOps::ForRows(uint32_t rows, uint32_t grain,
                     absl::FunctionRef<void(uint32_t, uint32_t, int)> body) {
  const uint32_t items = (rows + grain - 1) / grain;
  pool_.Run(items, [&](uint32_t item, int thread) {
    body(item * grain, std::min(rows, (item + 1) * grain), thread);
  });
}

absl::Status CpuOps::Execute(const PlanOp& op, PlanPart) {
  switch (op.kind) {
    case OpKind::kEmbed:
      Embed();
      break;
    case OpKind::kNorm:
      Normalize(op);
      break;
    case OpKind::kLinear:
      RunProduct(op);
      break;
    case OpKind::kAddBias:
      AddBias(op);
      break;
    case OpKind::kRotateAppend:
      RotateAndAppend(op);
      break;
    case OpKind::kKeepSampled:
      KeepSampledRows();
      break;
    case OpKind::kAttend:
      Attend(op);
      break;
    case OpKind::kActivate:
      Activate(op);
      break;
    case OpKind::kSumRanks:
      return SumRanks(op);
    case OpKind::kAddResidual:
      AddResidual();
      break;
    case OpKind::kGatherLogits:
      break;  // the sampler exchanges what it needs
  }
  return absl::OkStatus();
}

float* CpuOps::At(Buffer buffer) {
  switch (buffer) {
    case Buffer::kResidual:
      return ws_.residual;
    case Buffer::kQkv:
      return ws_.qkv;
    case Buffer::kAttention:
      return ws_.attention;
    case Buffer::kGateUp:
    case Buffer::kMlp:
      return ws_.gate;
    case Buffer::kPartial:
      // What is to be summed lies where the other ranks read it.
      return slice_.world == 1 ? ws_.partial
                               : communicator_->Stage(int64_t{rows_.rows()} * spec_.hidden);
    case Buffer::kLogits:
      return ws_.logits;
    case Buffer::kNone:
    case Buffer::kNormed:
    case Buffer::kPeerPartial:
      break;
  }
  WEFT_CHECK(false);
  return nullptr;
}

CpuOps::MatrixGroup CpuOps::MatricesOf(Matrix matrix, uint32_t layer) const {
  if (matrix == Matrix::kHead) return {{&weights_.head()}, 1};
  const CpuLayer& weights = weights_.layer(layer);
  switch (matrix) {
    case Matrix::kQkv:
      return {{&weights.query, &weights.key, &weights.value}, 3};
    case Matrix::kOutput:
      return {{&weights.output}, 1};
    case Matrix::kGateUp:
      return {{&weights.gate, &weights.up}, 2};
    case Matrix::kDown:
      return {{&weights.down}, 1};
    case Matrix::kNone:
    case Matrix::kHead:
      break;
  }
  return {};
}

void CpuOps::Embed() {
  const int64_t hidden = spec_.hidden;
  float* const out = slice_.world == 1 ? ws_.residual : At(Buffer::kPartial);
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (uint32_t row = begin; row < end; ++row) {
      const TokenId id = rows_.ids()[row];
      if (id >= slice_.vocab.begin && id < slice_.vocab.end) {
        kernels::cpu::UnpackRow(weights_.embedding().packed, id - slice_.vocab.begin,
                                out + row * hidden);
      } else {
        std::fill_n(out + row * hidden, hidden, 0.0f);
      }
    }
  });
}

ActivationType CpuOps::InputType(const CpuMatrix& matrix) const {
  return kernels::cpu::ActivationFor(matrix.packed.type, activation_);
}

Activations CpuOps::Input(ActivationType type, int64_t inputs) const {
  Activations input;
  input.type = type;
  input.rows = rows_.rows();
  input.inputs = inputs;
  input.values = ws_.values[static_cast<int>(type)];
  input.block_sums = ws_.block_sums[static_cast<int>(type)];
  return input;
}

void CpuOps::Prepare(absl::Span<const CpuMatrix* const> matrices, const float* x, int64_t stride,
                     uint32_t begin, uint32_t end) {
  bool done[2] = {false, false};
  for (const CpuMatrix* matrix : matrices) {
    const ActivationType type = InputType(*matrix);
    if (std::exchange(done[static_cast<int>(type)], true)) continue;
    const Activations rows =
        kernels::cpu::SliceRows(Input(type, matrix->packed.inputs), begin, end);
    kernels_->prepare_activations(x, stride, 0, end - begin, rows);
  }
}

void CpuOps::PrepareRows(const MatrixGroup& readers, const float* x, int64_t stride) {
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    Prepare(readers.span(), x + begin * stride, stride, begin, end);
  });
}

void CpuOps::Normalize(const PlanOp& op) {
  const MatrixGroup readers = MatricesOf(op.feeds, op.layer);
  absl::Span<const float> weight = weights_.final_norm();
  if (op.norm == Norm::kAttention) weight = weights_.layer(op.layer).attention_norm;
  if (op.norm == Norm::kMlp) weight = weights_.layer(op.layer).mlp_norm;
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int thread) {
    float* const row = ws_.threads[static_cast<size_t>(thread)].row;
    for (uint32_t r = begin; r < end; ++r) {
      kernels_->rms_norm(ws_.residual + int64_t{r} * spec_.hidden, spec_.hidden, weight.data(),
                         spec_.norm_epsilon, spec_.hidden, 1, row, spec_.hidden);
      Prepare(readers.span(), row, spec_.hidden, r, r + 1);
    }
  });
}

int64_t CpuOps::ChunkTiles(int64_t tiles) const {
  if (rows_.rows() >= kManyRows) return 2;
  const int64_t items = pool_.threads() == 1 ? 1 : pool_.threads() * kItemsPerThread;
  const int64_t chunk = (tiles + items - 1) / items;
  return (chunk + 1) / 2 * 2;
}

void CpuOps::LinearItem(const LinearPart& part, int64_t tile_begin, int64_t tile_end) {
  const kernels::cpu::PackedMatrix& packed = part.matrix->packed;
  const Activations input = Input(InputType(*part.matrix), packed.inputs);
  kernels_->linear(packed, input, tile_begin, tile_end, part.out, part.stride);
  if (!part.adds_bias) return;
  const int64_t begin = tile_begin * kTileOutputs;
  const int64_t count = std::min(tile_end * kTileOutputs, packed.outputs) - begin;
  for (int64_t row = 0; row < input.rows; ++row) {
    float* const out = part.out + row * part.stride + begin;
    kernels_->add(out, part.matrix->bias.data() + begin, count, out);
  }
}

void CpuOps::RunLinear(absl::Span<const LinearPart> parts, const Finish* finish) {
  int64_t tiles = 0;
  for (const LinearPart& part : parts) tiles += TileCount(part.matrix->packed.outputs);
  const int64_t chunk = ChunkTiles(tiles);
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
    linear_parts_.push_back({group.matrices[0], ws_.gate, slice_.mlp.size(), adds_bias});
    linear_parts_.push_back({group.matrices[1], ws_.up, slice_.mlp.size(), adds_bias});
    return linear_parts_;
  }
  // Side by side in one row.
  int64_t stride = 0;
  for (const CpuMatrix* const matrix : group.span()) stride += matrix->packed.outputs;
  for (const CpuMatrix* const matrix : group.span()) {
    linear_parts_.push_back({matrix, out, stride, adds_bias});
    out += matrix->packed.outputs;
  }
  return linear_parts_;
}

void CpuOps::RunProduct(const PlanOp& op) {
  const bool adds = op.epilogue == Epilogue::kAddToOut;
  const absl::Span<const LinearPart> parts = LinearParts(
      op, At(adds ? Buffer::kPartial : op.out), op.adds_bias && AddsBias(op.matrix, slice_.rank));
  if (op.matrix != Matrix::kHead) CountPass(parts);
  if (op.epilogue == Epilogue::kActivate) return RunActivatedProduct(op, parts[0], parts[1]);
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

void CpuOps::RunActivatedProduct(const PlanOp& op, const LinearPart& gate, const LinearPart& up) {
  const int64_t columns = slice_.mlp.size();
  const int64_t tiles = TileCount(columns);
  const int64_t chunk = ChunkTiles(tiles);
  pool_.Run(static_cast<uint32_t>((tiles + chunk - 1) / chunk), [&](uint32_t item, int) {
    const int64_t tile_begin = item * chunk;
    const int64_t tile_end = std::min(tiles, tile_begin + chunk);
    LinearItem(gate, tile_begin, tile_end);
    LinearItem(up, tile_begin, tile_end);
    const int64_t begin = tile_begin * kTileOutputs;
    const int64_t count = std::min(columns, tile_end * kTileOutputs) - begin;
    for (int64_t row = 0; row < rows_.rows(); ++row) {
      float* const out = ws_.gate + row * columns + begin;
      kernels_->silu_multiply(out, ws_.up + row * columns + begin, count, out);
    }
  });
  PrepareRows(MatricesOf(op.feeds, op.layer), ws_.gate, columns);
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
  const int64_t columns = slice_.mlp.size();
  kernels_->silu_multiply(ws_.gate, ws_.up, rows_.rows() * columns, ws_.gate);
  PrepareRows(MatricesOf(op.feeds, op.layer), ws_.gate, columns);
}

absl::Status CpuOps::SumRanks(const PlanOp& op) {
  const int64_t count = int64_t{rows_.rows()} * spec_.hidden;
  float* const target = op.out == Buffer::kPartial ? ws_.partial : ws_.residual;
  if (!op.adds_to_residual) std::fill_n(target, count, 0.0f);
  return communicator_->AllReduceAdd(target, count);
}

void CpuOps::AddResidual() {
  kernels_->add(ws_.residual, ws_.partial, int64_t{rows_.rows()} * spec_.hidden, ws_.residual);
}

void CpuOps::RotateAndAppend(const PlanOp& op) {
  const kernels::cpu::KvBlocks kv_layer = kv_.Layer(op.layer);
  const int64_t head_dim = spec_.head_dim;
  const auto heads = static_cast<int64_t>(slice_.heads.size() + slice_.kv_heads.size());
  pool_.Run(static_cast<uint32_t>(rows_.runs().size()), [&](uint32_t item, int) {
    const StepRows::Run& run = rows_.runs()[item];
    float* const first = ws_.qkv + run.row * qkv_columns_;
    for (uint32_t i = 0; i < run.rows; ++i) {
      // Query and key heads stand side by side.
      kernels_->rotary(first + i * qkv_columns_, heads, head_dim, spec_.rope.dims,
                       rotary_.cosines(run.start + i), rotary_.sines(run.start + i));
    }
    kernels::cpu::KvBlocks kv = kv_layer;
    kv.block_ids = run.block_ids;
    const float* const key = first + query_columns_;
    kernels_->kv_append(kv, run.start, run.rows, key, qkv_columns_, key + kv_columns_,
                        qkv_columns_);
  });
}

void CpuOps::Attend(const PlanOp& op) {
  const kernels::cpu::KvBlocks kv_layer = kv_.Layer(op.layer);
  const std::vector<StepRows::Run>& runs = rows_.runs();
  const uint32_t kv_heads = slice_.kv_heads.size();
  // The heads of a group share what is read of its keys and values: one alone costs nearly as much.
  pool_.Run(static_cast<uint32_t>(runs.size()) * kv_heads, [&](uint32_t item, int thread) {
    const StepRows::Run& run = runs[item / kv_heads];
    const uint32_t group = item % kv_heads;
    kernels::cpu::AttentionWork work;
    work.kv = kv_layer;
    work.kv.block_ids = run.block_ids;
    work.kv_head = group;
    work.heads = heads_.data() + heads_begin_[group];
    work.head_count = heads_begin_[group + 1] - heads_begin_[group];
    work.query = ws_.qkv + run.row * qkv_columns_;
    work.query_stride = qkv_columns_;
    work.out = ws_.attention + run.row * query_columns_;
    work.out_stride = query_columns_;
    work.rows = run.rows;
    work.start = run.start;
    work.scale = spec_.attention_scale;
    kernels_->attention(work, ws_.threads[static_cast<size_t>(thread)].attention);
  });
  PrepareRows(MatricesOf(op.feeds, op.layer), ws_.attention, query_columns_);
}

void CpuOps::KeepSampledRows() {
  // Rows ascend, so moving each one down overwrites nothing that is still needed.
  uint32_t kept = 0;
  for (const StepRows::SampledRow& sampled : rows_.sampled()) {
    if (sampled.row != kept) {
      std::memcpy(ws_.residual + int64_t{kept} * spec_.hidden,
                  ws_.residual + int64_t{sampled.row} * spec_.hidden, spec_.hidden * sizeof(float));
      std::memcpy(ws_.qkv + kept * qkv_columns_, ws_.qkv + sampled.row * qkv_columns_,
                  static_cast<size_t>(query_columns_) * sizeof(float));
    }
    ++kept;
  }
  rows_.KeepSampled();
}

absl::Status CpuOps::Sample(StepResult* result) {
  sampler_rows_.clear();
  for (const StepRows::SampledRow& row : rows_.sampled()) {
    sampler_rows_.push_back(Sampler::Row{row.slot, row.position});
  }
  return sampler_.Sample(sampler_rows_, ws_.logits, *kernels_, *communicator_, pool_, result);
}

}  // namespace weft::shard
