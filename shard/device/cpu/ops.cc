#include "shard/device/cpu/ops.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/status.h"
#include "shard/device/cpu/planner.h"

namespace weft::shard {
namespace {

using kernels::cpu::TileCount;

// From this many rows on a step computes longer than it reads weights.
constexpr uint32_t kComputingRows = 4;

}  // namespace

CpuOps::CpuOps(const Parts& parts)
    : spec_(parts.spec),
      slice_(parts.slice),
      weights_(parts.weights),
      ws_(parts.workspace),
      kv_(parts.kv),
      pool_(parts.pool),
      sampler_(parts.sampler),
      scorer_(parts.scorer),
      activation_(parts.activation),
      query_columns_(int64_t{slice_.heads.size()} * spec_.head_dim),
      kv_columns_(spec_.latent.rank > 0 ? 0 : int64_t{slice_.kv_heads.size()} * spec_.head_dim),
      qkv_columns_(query_columns_ + 2 * kv_columns_),
      attention_columns_(int64_t{slice_.heads.size()} * spec_.attention_dim()),
      aborted_(parts.aborted),
      plan_(MakeCpuPlan(spec_, slice_.world, parts.rules)),
      rows_(parts.limits),
      routes_(spec_.experts, parts.limits.step_tokens_max),
      slice_rows_(parts.limits.running_max) {
  for (uint32_t kind = 0; kind < ws_.rotary.size(); ++kind) {
    const Workspace::RotaryParts& memory = ws_.rotary[kind];
    rotary_.emplace_back(spec_.attention_kinds[kind].rope, spec_.context_tokens, memory.cosines,
                         memory.sines);
  }
  const std::vector<float> slopes = AlibiSlopes(spec_);
  if (!slopes.empty()) {
    slopes_.assign(slopes.begin() + slice_.heads.begin, slopes.begin() + slice_.heads.end);
  }
  sampler_rows_.reserve(parts.limits.running_max);
  scorer_rows_.reserve(slice_rows_);
  linear_parts_.reserve(3);
  heads_begin_.assign(slice_.kv_heads.size() + 1, 0);
  for (uint32_t head = 0; head < slice_.heads.size(); ++head) {
    heads_.push_back(head);
    heads_begin_[slice_.kv_head_of[head] + 1] = head + 1;
  }
  for (uint32_t group = 0; group < slice_.kv_heads.size(); ++group) {
    heads_max_ = std::max(heads_max_, heads_begin_[group + 1] - heads_begin_[group]);
  }
  for (uint32_t i = 0; i < spec_.layers; ++i) {
    const CpuLayer& layer = weights_.layer(i);
    // Of experts a step reads those that its rows take: they say nothing of how often it read.
    for (const CpuMatrix* matrix :
         {&layer.query, &layer.key, &layer.value, &layer.output, &layer.query_down, &layer.latent,
          &layer.gate, &layer.up, &layer.down, &layer.router}) {
      // Zero for what the layer does not have.
      layer_weight_tiles_ += static_cast<uint64_t>(TileCount(matrix->packed.outputs));
    }
  }
}

void CpuOps::BeginEpoch(const kernels::cpu::Kernels& kernels, HostCommunicator& communicator) {
  kernels_ = &kernels;
  communicator_ = &communicator;
}

absl::Status CpuOps::BeginStep(const StepBatch& batch) {
  masks_ = batch.masks.get();
  slice_begin_ = slice_end_ = 0;
  step_weight_tiles_ = 0;
  kv_saturated_.store(0, std::memory_order_relaxed);
  WEFT_RETURN_IF_ERROR(rows_.Build(batch, [this](Slot slot) { return sampler_.last_token(slot); }));
  for (uint32_t kind = 0; kind < rotary_.size(); ++kind) {
    if (spec_.RopeKind(kind) == kind) rotary_[kind].Extend(rows_.positions_end());
  }
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
  if (aborted_.load(std::memory_order_relaxed)) {
    return absl::AbortedError("the epoch was aborted while the step ran");
  }
  switch (op.kind) {
    case OpKind::kEmbed:
      Embed(op);
      break;
    case OpKind::kAddPositions:
      AddPositions(At(op.out));
      break;
    case OpKind::kNormResidual:
    case OpKind::kNormPartial:
      NormalizeInPlace(op, op.out == Buffer::kPartial ? ws_.partial : ws_.residual);
      break;
    case OpKind::kNorm:
      Normalize(op);
      break;
    case OpKind::kRound:
      Round(op);
      break;
    case OpKind::kLinear:
      RunProduct(op);
      break;
    case OpKind::kAddBias:
      AddBias(op);
      break;
    case OpKind::kClip:
      Clip();
      break;
    case OpKind::kNormHeads:
      NormalizeHeads(op);
      break;
    case OpKind::kNormLatent:
      NormalizeLatent(op);
      break;
    case OpKind::kHeadLinear:
      MultiplyByHead(op);
      break;
    case OpKind::kRotateAppend:
      spec_.latent.rank > 0 ? RotateAndAppendLatent(op) : RotateAndAppend(op);
      break;
    case OpKind::kKeepSampled:
      KeepRows();
      break;
    case OpKind::kAttend:
      Attend(op);
      break;
    case OpKind::kActivate:
      Activate(op);
      break;
    case OpKind::kRoute:
      Route(op);
      break;
    case OpKind::kExpertLinear:
      MultiplyByExperts(op);
      break;
    case OpKind::kScaleShared:
      ScaleShared(op);
      break;
    case OpKind::kCombine:
      Combine(op);
      break;
    case OpKind::kSumRanks:
      return SumRanks(op);
    case OpKind::kAddResidual:
      AddResidual();
      break;
    case OpKind::kCapLogits:
      CapLogits();
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
    case Buffer::kEmbedded:
      return ws_.embedded;
    case Buffer::kQkv:
      return ws_.qkv;
    case Buffer::kAttention:
      return ws_.attention;
    case Buffer::kQueryLatent:
      return ws_.latent.query;
    case Buffer::kHeadQuery:
      return ws_.latent.head_query;
    case Buffer::kLatent:
      return ws_.latent.row;
    case Buffer::kHeadValue:
      return ws_.latent.head_value;
    case Buffer::kGateUp:
    case Buffer::kMlp:
      return ws_.gate;
    case Buffer::kPartial:
      // What is to be summed lies where the other ranks read it.
      return slice_.world == 1 ? ws_.partial
                               : communicator_->Stage(int64_t{rows_.rows()} * spec_.hidden);
    case Buffer::kLogits:
      return ws_.logits;
    case Buffer::kRoutes:
      return ws_.experts.routes;
    case Buffer::kExpertGateUp:
    case Buffer::kExpertMlp:
      return ws_.experts.gate;
    case Buffer::kExpertOut:
      return ws_.experts.out;
    case Buffer::kNone:
    case Buffer::kNormed:
    case Buffer::kPeerPartial:
      break;
  }
  WEFT_CHECK(false);
  return nullptr;
}

void CpuOps::Embed(const PlanOp& op) {
  const int64_t columns = ColumnsOf(op.out);
  // What is to be summed lies where the other ranks read it.
  float* const out =
      slice_.world == 1 ? At(op.out) : communicator_->Stage(int64_t{rows_.rows()} * columns);
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (uint32_t row = begin; row < end; ++row) {
      const TokenId id = rows_.ids()[row];
      if (id >= slice_.vocab.begin && id < slice_.vocab.end) {
        float* const to = out + row * columns;
        kernels::cpu::UnpackRow(weights_.embedding().packed, id - slice_.vocab.begin, to);
        if (spec_.embedding_scale != 1.0f) {
          for (int64_t i = 0; i < columns; ++i) to[i] *= spec_.embedding_scale;
        }
      } else {
        std::fill_n(out + row * columns, columns, 0.0f);
      }
    }
  });
  const bool adds_positions = spec_.position == PositionKind::kLearned && slice_.rank == 0;
  if (adds_positions && op.out == Buffer::kResidual) AddPositions(out);
}

void CpuOps::AddPositions(float* rows) {
  const int64_t hidden = spec_.hidden;
  pool_.Run(static_cast<uint32_t>(rows_.runs().size()), [&](uint32_t item, int thread) {
    const StepRows::Run& run = rows_.runs()[item];
    float* const position = ws_.threads[static_cast<size_t>(thread)].row;
    for (uint32_t i = 0; i < run.rows; ++i) {
      kernels::cpu::UnpackRow(weights_.positions().packed, run.start + i + spec_.position_offset,
                              position);
      float* const row = rows + (run.row + i) * hidden;
      kernels_->add(row, position, hidden, row);
    }
  });
}

const CpuNorm& CpuOps::WeightsOf(Norm norm, uint32_t layer) const {
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
    case Norm::kLatent:
      break;  // of other widths (CpuOps::NormalizeLatent)
    case Norm::kFinal:
    case Norm::kNone:
      break;
  }
  return weights_.final_norm();
}

void CpuOps::NormalizeRow(const CpuNorm& weights, const float* in, float* out) const {
  const int64_t hidden = spec_.hidden;
  if (spec_.norm == NormKind::kRmsNorm) {
    kernels_->rms_norm(in, hidden, weights.weight.data(), spec_.norm_epsilon, hidden, 1, out,
                       hidden);
    return;
  }
  const float* const bias = weights.bias.empty() ? nullptr : weights.bias.data();
  kernels_->layer_norm(in, hidden, weights.weight.data(), bias, spec_.norm_epsilon, hidden, 1, out,
                       hidden);
}

void CpuOps::NormalizeInPlace(const PlanOp& op, float* rows) {
  const CpuNorm& weights = WeightsOf(op.norm, op.layer);
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (uint32_t r = begin; r < end; ++r) {
      float* const row = rows + int64_t{r} * spec_.hidden;
      NormalizeRow(weights, row, row);
    }
  });
}

void CpuOps::CapLogits() {
  const uint32_t columns = slice_.vocab.size();
  ForRows(rows_.rows(), 1, [&](uint32_t begin, uint32_t end, int) {
    float* const first = ws_.logits + uint64_t{begin} * columns;
    kernels_->soft_cap(first, spec_.logit_soft_cap, int64_t{end - begin} * columns, first);
  });
}

void CpuOps::Normalize(const PlanOp& op) {
  const MatrixGroup readers = MatricesOf(op.feeds, op.layer);
  const CpuNorm& weights = WeightsOf(op.norm, op.layer);
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int thread) {
    float* const row = ws_.threads[static_cast<size_t>(thread)].row;
    for (uint32_t r = begin; r < end; ++r) {
      NormalizeRow(weights, ws_.residual + int64_t{r} * spec_.hidden, row);
      Prepare(op.out, readers.span(), row, spec_.hidden, r, r + 1);
    }
  });
}

void CpuOps::Round(const PlanOp& op) {
  PrepareRows(op.out, MatricesOf(op.feeds, op.layer), At(op.in), ColumnsOf(op.in));
}

uint32_t CpuOps::score_slices() const {
  return (static_cast<uint32_t>(rows_.scored().size()) + slice_rows_ - 1) / slice_rows_;
}

absl::Status CpuOps::BeginSlice(uint32_t slice) {
  const auto scored = static_cast<uint32_t>(rows_.scored().size());
  slice_begin_ = slice * slice_rows_;
  slice_end_ = std::min(scored, slice_begin_ + slice_rows_);
  return absl::OkStatus();
}

absl::Status CpuOps::ScoreSlice(StepResult* result) {
  scorer_rows_.clear();
  for (uint32_t i = slice_begin_; i < slice_end_; ++i) {
    scorer_rows_.push_back(Scorer::Row{rows_.scored()[i].target, rows_.scored()[i].top});
  }
  slice_begin_ = slice_end_ = 0;
  return scorer_.Score(scorer_rows_, ws_.logits, *kernels_, *communicator_, pool_, &result->scores);
}

absl::Status CpuOps::Sample(StepResult* result) {
  if (masks_ != nullptr) WEFT_RETURN_IF_ERROR(masks_->Wait());
  sampler_rows_.clear();
  for (const StepRows::SampledRow& row : rows_.sampled()) {
    const RowMask* const mask = row.masked ? &masks_->Of(row.slot) : nullptr;
    sampler_rows_.push_back(Sampler::Row{row.slot, row.position, mask});
  }
  return sampler_.Sample(sampler_rows_, ws_.logits, *kernels_, *communicator_, pool_, result);
}

}  // namespace weft::shard
