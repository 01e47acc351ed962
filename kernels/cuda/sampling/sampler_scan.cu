// The sampler's first pass, a block a chunk: log-probability figures of the raw logits; bias, mask
// and penalties; then the best token of a greedy or temperature-only row.

#include <cuda_runtime.h>

#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/sampling/sample_noise.cuh"
#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {
namespace {

__device__ __forceinline__ float BlockMax(float x, uint64_t* scratch) {
  return ScoreOfBest(BlockMax64(BestKeyOr(0, x, 0), scratch));
}

__device__ __forceinline__ float RawWeight(float x, float best) {
  return x > -kInfinity ? PolyExp(__fsub_rn(x, best)) : 0.0f;
}

// Maximum, sum of exponentials and the first `top` tokens of the chunk's raw logits.
__device__ __forceinline__ void ScanRaw(const SamplerWork& work, const Tile& tile, uint32_t chunk,
                                        uint32_t at, uint32_t top, uint64_t* scratch, float* sums) {
  const float best = BlockMax(TileMax(tile), scratch);
  float sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    const float4 x = tile.quad[i];
    sum += (RawWeight(x.x, best) + RawWeight(x.y, best)) +
           (RawWeight(x.z, best) + RawWeight(x.w, best));
  }
  // Its barrier also frees `scratch`.
  sum = BlockSum(sum, sums);
  if (threadIdx.x == 0) work.raw[at] = {best, sum};
  uint64_t last = ~uint64_t{0};
  for (uint32_t rank = 0; rank < top; ++rank) {
    uint64_t key = 0;
    auto consider = [&key, last](float score, uint32_t id) {
      const uint64_t other = BestKeyOr(0, score, id);
      if (other < last && other > key) key = other;
    };
#pragma unroll
    for (uint32_t i = 0; i < kTileQuads; ++i) {
      const uint32_t id = QuadId(chunk, i);
      consider(tile.quad[i].x, id);
      consider(tile.quad[i].y, id + 1);
      consider(tile.quad[i].z, id + 2);
      consider(tile.quad[i].w, id + 3);
    }
    // Two scratches in turn: a warp may be one round behind, never two.
    last = BlockMax64(key, scratch + rank % 2 * kWarp);
    if (threadIdx.x == 0) work.raw_top[size_t{at} * kSamplerTopLogprobsMax + rank] = last;
  }
  __syncthreads();
}

// Adds the row's biases that fall into the chunk, by way of shared memory. The first entry of an id
// adds all of them, in order.
__device__ __forceinline__ void AddBiases(const SamplerParams& params, const SamplingRow& row,
                                          uint32_t chunk, Tile* tile, float4* shared) {
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    shared[i * kScanThreads + threadIdx.x] = tile->quad[i];
  }
  __syncthreads();
  const LogitBias* biases = params.biases + row.bias_begin;
  float* scores = reinterpret_cast<float*>(shared);
  for (uint32_t i = threadIdx.x; i < row.bias_count; i += kScanThreads) {
    const uint32_t id = biases[i].id;
    if (id / kChunk != chunk || id >= params.vocabulary) continue;
    bool first = true;
#pragma unroll 1
    for (uint32_t k = 0; k < i; ++k) first = first && biases[k].id != id;
    if (!first) continue;
    float score = scores[id % kChunk];
#pragma unroll 1
    for (uint32_t k = i; k < row.bias_count; ++k) {
      if (biases[k].id == id) score = __fadd_rn(score, biases[k].bias);
    }
    scores[id % kChunk] = score;
  }
  __syncthreads();
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    tile->quad[i] = shared[i * kScanThreads + threadIdx.x];
  }
}

__device__ __forceinline__ float Penalised(float logit, uint32_t count, const SamplingRow& row) {
  if (count == 0) return logit;
  const float repetition = row.repetition_penalty;
  if (repetition != 1.0f) {
    logit = logit > 0 ? __fdiv_rn(logit, repetition) : __fmul_rn(logit, repetition);
  }
  const uint32_t output = count & kCountOutputMask;
  if (output > 0) {
    logit = __fsub_rn(logit, __fmul_rn(row.frequency_penalty, static_cast<float>(output)));
    logit = __fsub_rn(logit, row.presence_penalty);
  }
  return logit;
}

__device__ __forceinline__ float4 PenalisedQuad(float4 x, const uint16_t* counts, uint32_t id,
                                                uint32_t vocabulary, const SamplingRow& row) {
  if (id >= vocabulary) return x;
  // The row's stride is a multiple of four, so that reading past an odd vocabulary stays inside.
  const uint2 both = *reinterpret_cast<const uint2*>(counts + id);
  x.x = Penalised(x.x, both.x & 0xffffu, row);
  if (id + 1 < vocabulary) x.y = Penalised(x.y, both.x >> 16, row);
  if (id + 2 < vocabulary) x.z = Penalised(x.z, both.y & 0xffffu, row);
  if (id + 3 < vocabulary) x.w = Penalised(x.w, both.y >> 16, row);
  return x;
}

// Of a logit outside of the mask.
__device__ __forceinline__ float Unmasked(float logit, float penalty) {
  return penalty > 0 ? __fsub_rn(logit, penalty) : -kInfinity;
}

__device__ __forceinline__ float4 MaskedQuad(float4 x, const uint32_t* mask, float penalty,
                                             uint32_t id, uint32_t vocabulary) {
  if (id >= vocabulary) return x;
  const uint32_t bits = mask[id / 32] >> id % 32;
  if ((bits & 1) == 0) x.x = Unmasked(x.x, penalty);
  if ((bits & 2) == 0) x.y = Unmasked(x.y, penalty);
  if ((bits & 4) == 0) x.z = Unmasked(x.z, penalty);
  if ((bits & 8) == 0) x.w = Unmasked(x.w, penalty);
  return x;
}

// Mask and penalties; stores the tile.
__device__ __forceinline__ void AdjustTile(const SamplerParams& params, const SamplingRow& row,
                                           uint32_t chunk, float* scores, Tile* tile) {
  const bool masked = row.mask_row != kNoSamplingRow;
  const bool penalties = HasPenalties(row, params);
  const uint32_t* mask = params.masks + (masked ? size_t{row.mask_row} * params.mask_stride : 0);
  const uint16_t* counts = params.counts + (penalties ? row.slot * params.count_stride : 0);
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    const uint32_t id = QuadId(chunk, i);
    float4 x = tile->quad[i];
    if (masked) x = MaskedQuad(x, mask, row.mask_penalty, id, params.vocabulary);
    if (penalties) x = PenalisedQuad(x, counts, id, params.vocabulary, row);
    StoreScores(scores, id, params.vocabulary, x);
    tile->quad[i] = x;
  }
}

// kExtras: with log-probabilities and adjustments.
template <bool kExtras>
__global__ void __launch_bounds__(kScanThreads, kExtras ? 2 : 4)
    ScanChunk(const SamplerParams params, const SamplerWork work) {
  AllowNextKernel();
  WaitForEarlierKernels();
  __shared__ uint64_t scratch[2 * kWarp];
  const uint32_t chunk = blockIdx.x;
  const uint32_t r = blockIdx.y;
  const SamplingRow& row = params.row_params[r];
  const RowKind kind = KindOf(row, params);
  if (kind == RowKind::kUnused || (!kExtras && kind == RowKind::kFiltered)) return;
  Tile tile;
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    tile.quad[i] = LoadScores(RawRow(params, r), QuadId(chunk, i), params.vocabulary);
  }
  const uint32_t at = r * work.chunks + chunk;
  if constexpr (kExtras) {
    __shared__ float sums[kWarp];
    __shared__ float4 shared[kTileQuads * kScanThreads];
    if (WantsLogprobs(row, params)) {
      ScanRaw(work, tile, chunk, at, TopLogprobs(row, params.vocabulary), scratch, sums);
    }
    if (IsAdjusted(row, params)) {
      if (row.bias_count > 0) AddBiases(params, row, chunk, &tile, shared);
      AdjustTile(params, row, chunk, ScoreRow(params, work, row, r), &tile);
    }
    if (kind == RowKind::kFiltered) return;
  }
  uint64_t best = 0;
  if (kind == RowKind::kNoise) {
    best = BestNoisy(tile, row, chunk, scratch);
  } else {
    best = BestOfTile(tile, TileMax(tile), chunk);
  }
  if (IsInvalid(tile)) best = kInvalidKey;
  // The other half: slow warps may still read the first.
  best = BlockMax64(best, scratch + kWarp);
  if (threadIdx.x == 0) work.best[at] = best;
}

}  // namespace

cudaError_t LaunchScan(const SamplerParams& params, const SamplerWork& work, cudaStream_t stream) {
  const bool extras = (params.features & (kSamplerLogprobs | kSamplerAdjustments)) != 0;
  return LaunchKernel(extras ? ScanChunk<true> : ScanChunk<false>, dim3(work.chunks, params.rows),
                      kScanThreads, 0, params.dependent, stream, params, work);
}

}  // namespace weft::kernels::cuda
