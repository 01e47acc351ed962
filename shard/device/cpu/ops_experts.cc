// The part of CpuOps that runs experts. A step's rows are copied to places, ordered by expert, so
// that each matrix of an expert is read once for all rows that take it; what a row's experts made
// is summed in the order of their numbers. Every number of a row is thus the same whatever other
// rows the step has (invariant num.row).

#include <algorithm>
#include <cstring>

#include "shard/device/cpu/ops.h"

namespace weft::shard {
namespace {

using kernels::cpu::Activations;
using kernels::cpu::ActivationType;
using kernels::cpu::kTileOutputs;
using kernels::cpu::TileCount;

void CopyRow(const Activations& from, uint32_t from_row, const Activations& to, uint32_t to_row) {
  const auto bytes = static_cast<size_t>(kernels::cpu::ActivationRowBytes(from.inputs));
  const auto sums = static_cast<size_t>(kernels::cpu::BlockSumCount(from.inputs));
  std::memcpy(to.values + to_row * bytes, from.values + from_row * bytes, bytes);
  std::memcpy(to.block_sums + to_row * sums, from.block_sums + from_row * sums,
              sums * sizeof(float));
}

}  // namespace

void CpuOps::Route(const PlanOp& op) {
  const absl::Span<const float> bias = weights_.layer(op.layer).choice_bias;
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (uint32_t row = begin; row < end; ++row) {
      routes_.Choose(*kernels_, row, ws_.experts.routes + size_t{row} * spec_.experts.count,
                     bias.empty() ? nullptr : bias.data());
    }
  });
  routes_.Sort(rows_.rows());
  if (expert_counts_ == nullptr) return;
  for (const ExpertRoutes::Group& group : routes_.groups()) {
    expert_counts_->Add(op.layer, group.expert, group.end - group.begin);
  }
}

void CpuOps::GatherNormed(const CpuExpert& expert) {
  const absl::Span<const uint32_t> rows = routes_.rows();
  const auto places = static_cast<uint32_t>(rows.size());
  const ActivationType gate = InputType(expert.gate);
  const ActivationType up = InputType(expert.up);
  for (const ActivationType type : {gate, up}) {
    const Activations from = Input(Buffer::kNormed, type, spec_.hidden);
    const Activations to = View(ws_.experts.normed, type, places, spec_.hidden);
    ForRows(places, kRowGrain, [&](uint32_t begin, uint32_t end, int) {
      for (uint32_t place = begin; place < end; ++place) CopyRow(from, rows[place], to, place);
    });
    if (gate == up) return;
  }
}

void CpuOps::MultiplyByExperts(const PlanOp& op) {
  const std::vector<CpuExpert>& experts = weights_.layer(op.layer).experts;
  const bool down = op.matrix == Matrix::kExpertDown;
  const bool adds_bias = op.adds_bias && AddsBias(op.matrix, slice_.rank);
  if (!down) GatherNormed(experts[0]);
  const Workspace::Prepared& prepared = down ? ws_.experts.made : ws_.experts.normed;
  const auto places = static_cast<uint32_t>(routes_.rows().size());
  const absl::Span<const ExpertRoutes::Group> groups = routes_.groups();
  const int64_t columns = (down ? experts[0].down : experts[0].gate).packed.outputs;
  const int64_t tiles = TileCount(columns);
  const auto group_count = static_cast<int64_t>(groups.size());
  const int64_t chunk =
      std::min(tiles, ChunkTiles(tiles * group_count, places / static_cast<uint32_t>(group_count)));
  const int64_t items = (tiles + chunk - 1) / chunk;
  pool_.Run(static_cast<uint32_t>(items * group_count), [&](uint32_t item, int) {
    const ExpertRoutes::Group& group = groups[item / items];
    const int64_t tile_begin = item % items * chunk;
    const int64_t tile_end = std::min(tiles, tile_begin + chunk);
    const auto multiply = [&](const CpuMatrix& matrix, float* out) {
      const Activations all = View(prepared, InputType(matrix), places, matrix.packed.inputs);
      MultiplyTiles(matrix, kernels::cpu::SliceRows(all, group.begin, group.end), tile_begin,
                    tile_end, adds_bias, out + group.begin * columns, columns);
    };
    const CpuExpert& expert = experts[group.expert];
    if (down) return multiply(expert.down, ws_.experts.out);
    multiply(expert.gate, ws_.experts.gate);
    multiply(expert.up, ws_.experts.up);
    if (op.epilogue != Epilogue::kActivate) return;
    const int64_t begin = tile_begin * kTileOutputs;
    const int64_t count = std::min(columns, tile_end * kTileOutputs) - begin;
    for (int64_t place = group.begin; place < group.end; ++place) {
      const int64_t at = place * columns + begin;
      ActivateRange(ws_.experts.gate + at, ws_.experts.up + at, count);
    }
  });
  if (op.epilogue == Epilogue::kActivate) PrepareActivated(experts[0].down);
}

void CpuOps::ActivateExperts(const PlanOp& op) {
  const CpuMatrix& down = weights_.layer(op.layer).experts[0].down;
  const auto places = static_cast<int64_t>(routes_.rows().size());
  ActivateRange(ws_.experts.gate, ws_.experts.up, places * down.packed.inputs);
  PrepareActivated(down);
}

void CpuOps::PrepareActivated(const CpuMatrix& down) {
  const int64_t columns = down.packed.inputs;
  const auto places = static_cast<uint32_t>(routes_.rows().size());
  const Activations all = View(ws_.experts.made, InputType(down), places, columns);
  ForRows(places, kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    kernels_->prepare_activations(ws_.experts.gate + begin * columns, columns, 0, end - begin,
                                  kernels::cpu::SliceRows(all, begin, end));
  });
}

void CpuOps::ScaleShared(const PlanOp& op) {
  const CpuMatrix& matrix = weights_.layer(op.layer).shared_scale;
  float* const scales = ws_.experts.scales;
  const Activations input = Input(op.in, InputType(matrix), spec_.hidden);
  float* const partial = At(op.out);
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    MultiplyTiles(matrix, kernels::cpu::SliceRows(input, begin, end), 0, 1, /*adds_bias=*/false,
                  scales + begin, 1);
    for (uint32_t row = begin; row < end; ++row) {
      const float negative = -scales[row];
      float power;
      kernels_->exp(&negative, 1, &power);
      const float scale = 1.0f / (1.0f + power);
      float* const out = partial + int64_t{row} * spec_.hidden;
      for (uint32_t i = 0; i < spec_.hidden; ++i) out[i] *= scale;
    }
  });
}

void CpuOps::Combine(const PlanOp& op) {
  const int64_t hidden = spec_.hidden;
  float* const partial = At(op.out);
  const bool behind_shared = spec_.experts.shared_hidden > 0;
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (uint32_t row = begin; row < end; ++row) {
      float* const out = partial + row * hidden;
      if (!behind_shared) std::fill_n(out, hidden, 0.0f);
      for (const ExpertRoutes::Choice& choice : routes_.choices(row)) {
        const float* const made = ws_.experts.out + choice.place * hidden;
        for (int64_t i = 0; i < hidden; ++i) out[i] += choice.weight * made[i];
      }
    }
  });
}

}  // namespace weft::shard
