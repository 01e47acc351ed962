// The part of CpuOps that is latent attention's own (shard/model/latent_spec.h): norms of latents,
// products by head, and what is rotated and goes into the cache. A head's matrix is read once for
// all rows.

#include <algorithm>
#include <cstring>

#include "shard/device/cpu/ops.h"

namespace weft::shard {
namespace {

using kernels::cpu::Activations;
using kernels::cpu::TileCount;

}  // namespace

void CpuOps::NormalizeLatent(const PlanOp& op) {
  const CpuLayer& layer = weights_.layer(op.layer);
  const LatentSpec& latent = spec_.latent;
  const bool query = op.norm == Norm::kQueryLatent;
  float* const rows = At(op.out);
  const int64_t count = query ? latent.query_rank : latent.rank;
  const int64_t stride = query ? latent.query_rank : spec_.head_dim;
  const float* const weight = (query ? layer.query_latent_norm : layer.latent_norm).data();
  ForRows(rows_.rows(), kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    float* const first = rows + begin * stride;
    kernels_->rms_norm(first, stride, weight, latent.norm_epsilon, count, end - begin, first,
                       stride);
  });
  if (query) PrepareRows(op.out, MatricesOf(op.feeds, op.layer), rows, stride);
}

void CpuOps::MultiplyByHead(const PlanOp& op) {
  const bool keys = op.matrix == Matrix::kKeyUp;
  const CpuLayer& layer = weights_.layer(op.layer);
  const std::vector<CpuMatrix>& matrices = keys ? layer.key_up : layer.value_up;
  const auto heads = static_cast<int64_t>(matrices.size());
  const uint32_t rows = rows_.rows();
  // From one head of a row to the next.
  const int64_t in_dim = keys ? spec_.query_dim() : spec_.attention_dim();
  const int64_t out_dim = keys ? spec_.head_dim : spec_.output_dim();
  const float* const in = At(op.in);
  float* const out = At(op.out);
  const Activations all =
      View(ws_.latent.by_head, InputType(matrices[0]), heads * rows, matrices[0].packed.inputs);
  ForRows(rows, kRowGrain, [&](uint32_t begin, uint32_t end, int) {
    for (int64_t head = 0; head < heads; ++head) {
      kernels_->prepare_activations(
          in + (begin * heads + head) * in_dim, heads * in_dim, 0, end - begin,
          kernels::cpu::SliceRows(all, head * rows + begin, head * rows + end));
    }
  });
  const int64_t tiles = TileCount(matrices[0].packed.outputs);
  const int64_t chunk = std::min(tiles, ChunkTiles(tiles * heads, rows));
  const int64_t items = (tiles + chunk - 1) / chunk;
  pool_.Run(static_cast<uint32_t>(items * heads), [&](uint32_t item, int) {
    const int64_t head = item / items;
    const int64_t tile_begin = item % items * chunk;
    MultiplyTiles(matrices[static_cast<size_t>(head)],
                  kernels::cpu::SliceRows(all, head * rows, (head + 1) * rows), tile_begin,
                  std::min(tiles, tile_begin + chunk), /*adds_bias=*/false, out + head * out_dim,
                  heads * out_dim);
  });
  if (keys) return;
  PrepareRows(op.out, MatricesOf(op.feeds, op.layer), out, heads * out_dim);
}

void CpuOps::RotateAndAppendLatent(const PlanOp& op) {
  const kernels::cpu::KvBlocks kv_layer = kv_.Layer(op.layer);
  const uint32_t kv_group = kv_.GroupOf(op.layer);
  const int64_t heads = slice_.heads.size();
  const int64_t query_dim = spec_.query_dim();
  const int64_t head_dim = spec_.head_dim;
  const int64_t rank = spec_.latent.rank;
  const int64_t dims = head_dim - rank;
  const RotaryTable& rotary = rotary_[spec_.RopeKind(spec_.KindOf(op.layer))];
  pool_.Run(static_cast<uint32_t>(rows_.runs().size()), [&](uint32_t item, int) {
    const StepRows::Run& run = rows_.runs()[item];
    float* const latents = ws_.latent.row + run.row * head_dim;
    for (uint32_t i = 0; i < run.rows; ++i) {
      const uint32_t position = run.start + i;
      const float* const cosines = rotary.cosines(position);
      const float* const sines = rotary.sines(position);
      const int64_t row = run.row + i;
      float* const made = ws_.latent.head_query + row * heads * query_dim + query_dim - dims;
      kernels_->rotary(made, heads, query_dim, dims, cosines, sines);
      float* const query = ws_.qkv + row * qkv_columns_ + rank;
      for (int64_t head = 0; head < heads; ++head) {
        std::memcpy(query + head * head_dim, made + head * query_dim,
                    static_cast<size_t>(dims) * sizeof(float));
      }
      kernels_->rotary(latents + i * head_dim + rank, 1, head_dim, dims, cosines, sines);
    }
    const StepRows::Table table = rows_.table(run.sequence, kv_group);
    kernels::cpu::KvBlocks kv = kv_layer;
    kv.block_ids = table.block_ids;
    kv.first_block = table.first;
    CountSaturated(kernels_->kv_append(kv, run.start, run.rows, latents, head_dim, nullptr, 0));
  });
}

}  // namespace weft::shard
