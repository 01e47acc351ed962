// The half of CpuOps that attends: what is done to query, key and value, the KV cache, attention
// itself, and the choice of the rows that go on.

#include <algorithm>
#include <cstring>

#include "shard/device/cpu/ops.h"

namespace weft::shard {
namespace {

// Of a group of one KV head, that are worth an item of their own.
constexpr uint32_t kHeadsOfPart = 3;

}  // namespace

void CpuOps::Clip() {
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    float* const first = ws_.qkv + begin * qkv_columns_;
    kernels_->clip(first, spec_.qkv_clip, (end - begin) * qkv_columns_, first);
  });
}

void CpuOps::NormalizeHeads(const PlanOp& op) {
  const CpuLayer& layer = weights_.layer(op.layer);
  const int64_t dim = spec_.head_dim;
  const auto normalize = [&](float* head, int64_t heads, absl::Span<const float> weight) {
    kernels_->rms_norm(head, dim, weight.data(), spec_.norm_epsilon, dim, heads, head, dim);
  };
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (uint32_t r = begin; r < end; ++r) {
      float* const row = ws_.qkv + r * qkv_columns_;
      normalize(row, slice_.heads.size(), layer.query_norm);
      normalize(row + query_columns_, slice_.kv_heads.size(), layer.key_norm);
    }
  });
}

void CpuOps::RotateAndAppend(const PlanOp& op) {
  const kernels::cpu::KvBlocks kv_layer = kv_.Layer(op.layer);
  const uint32_t kv_group = kv_.GroupOf(op.layer);
  const int64_t head_dim = spec_.head_dim;
  const auto heads = static_cast<int64_t>(slice_.heads.size() + slice_.kv_heads.size());
  const uint32_t kind = spec_.KindOf(op.layer);
  const uint32_t dims = spec_.attention_kinds[kind].rope.dims;
  const RotaryTable& rotary = rotary_[spec_.RopeKind(kind)];
  pool_.Run(static_cast<uint32_t>(rows_.runs().size()), [&](uint32_t item, int) {
    const StepRows::Run& run = rows_.runs()[item];
    float* const first = ws_.qkv + run.row * qkv_columns_;
    for (uint32_t i = 0; i < run.rows && dims > 0; ++i) {
      // Query and key heads stand side by side.
      kernels_->rotary(first + i * qkv_columns_, heads, head_dim, dims,
                       rotary.cosines(run.start + i), rotary.sines(run.start + i));
    }
    const StepRows::Table table = rows_.table(run.sequence, kv_group);
    kernels::cpu::KvBlocks kv = kv_layer;
    kv.block_ids = table.block_ids;
    kv.first_block = table.first;
    const float* const key = first + query_columns_;
    CountSaturated(kernels_->kv_append(kv, run.start, run.rows, key, qkv_columns_,
                                       key + kv_columns_, qkv_columns_));
  });
}

void CpuOps::CountSaturated(int64_t numbers) {
  if (numbers == 0) return;
  kv_saturated_.fetch_add(static_cast<uint64_t>(numbers), std::memory_order_relaxed);
}

void CpuOps::Attend(const PlanOp& op) {
  const kernels::cpu::KvBlocks kv_layer = kv_.Layer(op.layer);
  const uint32_t kv_group = kv_.GroupOf(op.layer);
  const std::vector<StepRows::Run>& runs = rows_.runs();
  const uint32_t kv_heads = slice_.kv_heads.size();
  // The heads of a group share what is read of its keys and values: one alone costs nearly as much.
  // So a group is cut only where threads would have nothing to do, and into parts of several heads.
  const uint32_t items = static_cast<uint32_t>(runs.size()) * kv_heads;
  const auto threads = static_cast<uint32_t>(pool_.threads());
  const uint32_t parts = std::clamp(heads_max_ / kHeadsOfPart, 1u, (threads - 1) / items + 1);
  pool_.Run(items * parts, [&](uint32_t item, int thread) {
    const StepRows::Run& run = runs[item / parts / kv_heads];
    const uint32_t group = item / parts % kv_heads;
    const uint32_t heads = heads_begin_[group + 1] - heads_begin_[group];
    const uint32_t head_begin = heads * (item % parts) / parts;
    const uint32_t head_end = heads * (item % parts + 1) / parts;
    kernels::cpu::AttentionWork work;
    const StepRows::Table table = rows_.table(run.sequence, kv_group);
    work.kv = kv_layer;
    work.kv.block_ids = table.block_ids;
    work.kv.first_block = table.first;
    work.kv_head = group;
    work.heads = heads_.data() + heads_begin_[group] + head_begin;
    work.head_count = head_end - head_begin;
    work.query = ws_.qkv + run.row * qkv_columns_;
    work.query_stride = qkv_columns_;
    work.latent_dim = spec_.latent.rank;
    work.out = ws_.attention + run.row * attention_columns_;
    work.out_stride = attention_columns_;
    work.rows = run.rows;
    work.start = run.start;
    work.scale = spec_.attention_scale;
    work.soft_cap = spec_.attention_soft_cap;
    work.window = op.window_tokens;
    if (!slopes_.empty()) work.slopes = slopes_.data();
    if (spec_.attention_sinks) work.sinks = weights_.layer(op.layer).sinks.data();
    kernels_->attention(work, ws_.threads[static_cast<size_t>(thread)].attention);
  });
  // Products by head prepare their own.
  if (op.feeds != Matrix::kOutput) return;
  PrepareRows(op.out, MatricesOf(op.feeds, op.layer), ws_.attention, attention_columns_);
}

void CpuOps::Copy(const RowState& from, const RowState& to) const {
  if (from.residual == to.residual) return;
  std::memcpy(to.residual, from.residual, spec_.hidden * sizeof(float));
  std::memcpy(to.query, from.query, static_cast<size_t>(query_columns_) * sizeof(float));
}

void CpuOps::KeepRows() {
  // Rows ascend, so moving each one down overwrites nothing that is still needed: not of this
  // slice, and not of a later one, whose rows lie behind as many as a slice has.
  const auto& sampled = rows_.sampled();
  const auto& scored = rows_.scored();
  if (slice_end_ > 0) {
    for (uint32_t i = 0; slice_begin_ == 0 && i < sampled.size(); ++i) {
      Copy(StateOf(sampled[i].row), WaitingState(i));
    }
    for (uint32_t i = slice_begin_; i < slice_end_; ++i) {
      Copy(StateOf(scored[i].row), StateOf(i - slice_begin_));
    }
    rows_.KeepScored(slice_begin_, slice_end_);
    return;
  }
  for (uint32_t i = 0; i < sampled.size(); ++i) {
    Copy(scored.empty() ? StateOf(sampled[i].row) : WaitingState(i), StateOf(i));
  }
  rows_.KeepSampled();
}

}  // namespace weft::shard
