// What the sampler's kernels share: the workspace, which path a row takes, tiles of a row, and
// reductions of 64-bit integers (exact, so any order will do). Device code only.

#pragma once

#include <cstdint>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sampling/sample_math.cuh"
#include "kernels/cuda/sampling/sampler.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kScanThreads = 256;
inline constexpr uint32_t kTileQuads = 4;
// Logits a block looks at in the kernels that spread a row. Fixed, so that a row's sums do not
// depend on the number of rows.
inline constexpr uint32_t kChunk = kScanThreads * kTileQuads * 4;
inline constexpr uint32_t kCandidatesMax = 8192;

struct Candidate {
  float score;
  uint32_t id;
};

struct RowState {
  // Mass of the row relative to its best token; only for top-p without filters in front of it.
  uint64_t total;
  // Best score; -infinity for a row of nothing, +infinity for one with NaN or +infinity.
  float best;
  // In the list; more than kCandidatesMax means that they are not all there.
  uint32_t candidates;
  // 1: there is no list.
  uint32_t whole_row;
};

struct RawChunk {
  float max;
  float sum;
};

// Pointers into the workspace; [rows, chunks] where not said otherwise.
struct SamplerWork {
  uint32_t chunks;
  uint64_t adjusted_stride;
  uint64_t* best;
  // [rows], [rows, kCandidatesMax]: with filters.
  RowState* states;
  Candidate* candidates;
  // And [rows, chunks, kSamplerTopLogprobsMax] BestKeys in order: with log-probabilities.
  RawChunk* raw;
  uint64_t* raw_top;
  // [rows, adjusted_stride]: with log-probabilities and adjustments.
  float* adjusted;
};

// By the row's best score.
__device__ __forceinline__ bool IsDistribution(float best) {
  return best > -kInfinity && best < kInfinity;
}

enum class RowKind { kUnused, kGreedy, kNoise, kFiltered };

__device__ __forceinline__ bool UsesTopK(const SamplingRow& row, uint32_t vocabulary) {
  return row.top_k > 0 && row.top_k < vocabulary;
}

__device__ __forceinline__ RowKind KindOf(const SamplingRow& row, const SamplerParams& params) {
  if (row.slot == kNoSamplingRow) return RowKind::kUnused;
  if (!(row.temperature > 0)) return RowKind::kGreedy;
  const bool filtered =
      UsesTopK(row, params.vocabulary) || row.typical_p < 1 || row.top_p < 1 || row.min_p > 0;
  return filtered && (params.features & kSamplerFilters) != 0 ? RowKind::kFiltered
                                                              : RowKind::kNoise;
}

__device__ __forceinline__ bool HasPenalties(const SamplingRow& row, const SamplerParams& params) {
  return (params.features & kSamplerAdjustments) != 0 &&
         (row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
          row.frequency_penalty != 0.0f);
}

__device__ __forceinline__ bool IsAdjusted(const SamplingRow& row, const SamplerParams& params) {
  if ((params.features & kSamplerAdjustments) == 0) return false;
  return row.bias_count > 0 || row.mask_row != kNoSamplingRow || HasPenalties(row, params);
}

__device__ __forceinline__ bool WantsLogprobs(const SamplingRow& row, const SamplerParams& params) {
  return (params.features & kSamplerLogprobs) != 0 && row.logprobs != 0;
}

__device__ __forceinline__ uint32_t TopLogprobs(const SamplingRow& row, uint32_t vocabulary) {
  return min(min(row.top_logprobs, kSamplerTopLogprobsMax), vocabulary);
}

// The row's logits as the model gave them, and after bias, mask and penalties: the same place, but
// where the former are needed later.
__device__ __forceinline__ float* RawRow(const SamplerParams& params, uint32_t r) {
  return params.logits + r * params.row_stride;
}
__device__ __forceinline__ float* ScoreRow(const SamplerParams& params, const SamplerWork& work,
                                           const SamplingRow& row, uint32_t r) {
  const bool apart = IsAdjusted(row, params) && WantsLogprobs(row, params);
  return apart ? work.adjusted + r * work.adjusted_stride : RawRow(params, r);
}

// First id of the thread's i-th quad of a chunk.
__device__ __forceinline__ uint32_t QuadId(uint32_t chunk, uint32_t i) {
  return chunk * kChunk + (i * kScanThreads + threadIdx.x) * 4;
}

// Places from `count` on read as -infinity.
__device__ __forceinline__ float4 LoadScores(const float* row, uint32_t id, uint32_t count) {
  if (id + 4 <= count) return *reinterpret_cast<const float4*>(row + id);
  float4 out = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  if (id < count) out.x = row[id];
  if (id + 1 < count) out.y = row[id + 1];
  if (id + 2 < count) out.z = row[id + 2];
  return out;
}
// Of non-NaN scores.
__device__ __forceinline__ float MaxOf(float4 x) { return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)); }

__device__ __forceinline__ void StoreScores(float* row, uint32_t id, uint32_t count, float4 x) {
  if (id + 4 <= count) {
    *reinterpret_cast<float4*>(row + id) = x;
    return;
  }
  if (id < count) row[id] = x.x;
  if (id + 1 < count) row[id + 1] = x.y;
  if (id + 2 < count) row[id + 2] = x.z;
}

// Every thread gets the result over the block. `scratch`: 32 words, free again after the block's
// next barrier.
__device__ __forceinline__ uint64_t WarpMax64(uint64_t x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), offset);
    x = other > x ? other : x;
  }
  return x;
}
__device__ __forceinline__ uint64_t BlockMax64(uint64_t x, uint64_t* scratch) {
  const uint32_t lane = threadIdx.x % kWarp;
  x = WarpMax64(x);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  return WarpMax64(lane < blockDim.x / kWarp ? scratch[lane] : 0);
}
__device__ __forceinline__ uint64_t WarpSum64(uint64_t x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), offset);
  }
  return x;
}
__device__ __forceinline__ uint64_t BlockSum64(uint64_t x, uint64_t* scratch) {
  const uint32_t lane = threadIdx.x % kWarp;
  x = WarpSum64(x);
  if (lane == 0) scratch[threadIdx.x / kWarp] = x;
  __syncthreads();
  return WarpSum64(lane < blockDim.x / kWarp ? scratch[lane] : 0);
}

// The kernels, in order (sampler_scan.cu, sampler_filter.cu, sampler_finish.cu).
// Each waits for all in front of it, so that all may start early.
cudaError_t LaunchScan(const SamplerParams& params, const SamplerWork& work, cudaStream_t stream);
cudaError_t LaunchFilter(const SamplerParams& params, const SamplerWork& work, cudaStream_t stream);
cudaError_t LaunchFinish(const SamplerParams& params, const SamplerWork& work, cudaStream_t stream);

}  // namespace weft::kernels::cuda
