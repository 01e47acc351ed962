// The sampler's last pass, a block a row: the chunks' best or the filters and the draw, then
// log-probabilities and bookkeeping.

#include <cuda_runtime.h>

#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/sampling/sample_select.cuh"
#include "kernels/cuda/sampling/sample_short.cuh"
#include "kernels/cuda/sampling/sample_work.cuh"

namespace weft::kernels::cuda {
namespace {

// What out_ids says of a draw.
__device__ __forceinline__ uint32_t SampleOf(uint64_t key) {
  return IdOfBest(key) | (key == 0 || key == kInvalidKey ? kInvalidSampleBit : 0);
}

__device__ __forceinline__ uint32_t BestOfChunks(const SamplerWork& work, uint32_t r,
                                                 uint64_t* scratch) {
  uint64_t best = 0;
  for (uint32_t i = threadIdx.x; i < work.chunks; i += kSelectThreads) {
    best = max(best, work.best[size_t{r} * work.chunks + i]);
  }
  return SampleOf(BlockMax64(best, scratch));
}

// log(sum of exp) of the row as the model gave it, in every warp; chunks in a fixed order.
__device__ __forceinline__ double LogSumExp(const SamplerWork& work, uint32_t r) {
  const RawChunk* raw = work.raw + size_t{r} * work.chunks;
  const uint32_t lane = threadIdx.x % kWarp;
  float best = -kInfinity;
  for (uint32_t i = lane; i < work.chunks; i += kWarp) best = fmaxf(best, raw[i].max);
  best = WarpMax(best);
  double sum = 0;
  for (uint32_t i = lane; i < work.chunks; i += kWarp) {
    if (raw[i].max > -kInfinity) sum += raw[i].sum * exp(static_cast<double>(raw[i].max) - best);
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  return best + log(sum);
}

__device__ __forceinline__ void WriteLogprobs(const SamplerParams& params, const SamplerWork& work,
                                              const SamplingRow& row, uint32_t r, uint32_t id,
                                              SelectScratch& scratch) {
  const double log_sum_exp = LogSumExp(work, r);
  if (threadIdx.x == 0) {
    params.out_logprobs[r] = static_cast<float>(RawRow(params, r)[id] - log_sum_exp);
  }
  const uint32_t top = TopLogprobs(row, params.vocabulary);
  const uint64_t* keys = work.raw_top + size_t{r} * work.chunks * kSamplerTopLogprobsMax;
  uint64_t last = kKeepAll;
  __syncthreads();
  for (uint32_t rank = 0; rank < kSamplerTopLogprobsMax; ++rank) {
    uint64_t best = 0;
    if (rank < top) {
      for (uint32_t i = threadIdx.x; i < work.chunks * kSamplerTopLogprobsMax;
           i += kSelectThreads) {
        // Only the first `top` of each chunk were written.
        if (i % kSamplerTopLogprobsMax >= top) continue;
        const uint64_t key = keys[i];
        if (key < last && key > best) best = key;
      }
      // Two scratches in turn: a warp may be one round behind, never two.
      last = BlockMax64(best, scratch.warps[rank % 2]);
    } else {
      last = 0;
    }
    if (threadIdx.x != 0) continue;
    const size_t at = size_t{r} * kSamplerTopLogprobsMax + rank;
    params.out_top_ids[at] = last == 0 ? kNoSampledToken : IdOfBest(last);
    params.out_top_logprobs[at] =
        last == 0 ? -kInfinity : static_cast<float>(ScoreOfBest(last) - log_sum_exp);
  }
}

// Of a filtered row, as out_ids says it.
__device__ __forceinline__ uint32_t FilteredSample(const SamplerParams& params,
                                                   const SamplerWork& work, const SamplingRow& row,
                                                   uint32_t r, SelectScratch& scratch,
                                                   uint64_t (*places)[kSelectThreads]) {
  const RowState state = work.states[r];
  if (!IsDistribution(state.best)) return kInvalidSampleBit;
  const uint32_t vocabulary = params.vocabulary;
  if (state.whole_row != 0 || state.candidates > kCandidatesMax) {
    const RowTokens tokens = {ScoreRow(params, work, row, r), vocabulary};
    return FilterAndDraw(tokens, row, vocabulary, state.best, state.total, scratch);
  }
  const Candidate* list = work.candidates + size_t{r} * kCandidatesMax;
  if (IsShort(row, state.candidates)) {
    return DrawOfShortList(list, state.candidates, row, vocabulary, state.best, state.total,
                           scratch, places);
  }
  const ListTokens tokens = {list, state.candidates};
  return FilterAndDraw(tokens, row, vocabulary, state.best, state.total, scratch);
}

// By one thread.
__device__ __forceinline__ void WriteToken(const SamplerParams& params, const SamplingRow& row,
                                           uint32_t r, uint32_t sample) {
  params.out_ids[r] = sample;
  const uint32_t id = sample & ~kInvalidSampleBit;
  if (params.last_sampled != nullptr) params.last_sampled[row.slot] = id;
  if (HasPenalties(row, params)) {
    uint16_t& count = params.counts[row.slot * params.count_stride + id];
    if ((count & kCountOutputMask) < kCountOutputMask) ++count;
  }
}

__global__ void __launch_bounds__(kSelectThreads)
    FinishRow(const SamplerParams params, const SamplerWork work) {
  AllowNextKernel();
  WaitForEarlierKernels();
  __shared__ SelectScratch scratch;
  __shared__ uint64_t places[2][kSelectThreads];
  const uint32_t r = blockIdx.x;
  const SamplingRow& row = params.row_params[r];
  const RowKind kind = KindOf(row, params);
  if (kind == RowKind::kUnused) return;
  uint32_t sample;
  if (kind == RowKind::kFiltered) {
    sample = FilteredSample(params, work, row, r, scratch, places);
  } else {
    sample = BestOfChunks(work, r, scratch.warps[0]);
  }
  if (threadIdx.x == 0) WriteToken(params, row, r, sample);
  if (WantsLogprobs(row, params)) {
    const uint32_t id = params.targets == nullptr ? sample & ~kInvalidSampleBit : params.targets[r];
    WriteLogprobs(params, work, row, r, id, scratch);
  }
}

// For calls without filters and log-probabilities: a warp a row.
__global__ void __launch_bounds__(kWarp)
    FinishPlainRow(const SamplerParams params, const SamplerWork work) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t r = blockIdx.x;
  const SamplingRow& row = params.row_params[r];
  // No matter when the row is not used.
  uint64_t best = 0;
  for (uint32_t i = threadIdx.x; i < work.chunks; i += kWarp) {
    best = max(best, work.best[size_t{r} * work.chunks + i]);
  }
  best = WarpMax64(best);
  if (KindOf(row, params) == RowKind::kUnused) return;
  if (threadIdx.x == 0) WriteToken(params, row, r, SampleOf(best));
}

}  // namespace

cudaError_t LaunchFinish(const SamplerParams& params, const SamplerWork& work,
                         cudaStream_t stream) {
  if ((params.features & (kSamplerFilters | kSamplerLogprobs)) == 0) {
    return LaunchKernel(FinishPlainRow, dim3(params.rows), kWarp, 0, true, stream, params, work);
  }
  return LaunchKernel(FinishRow, dim3(params.rows), kSelectThreads, 0, true, stream, params, work);
}

}  // namespace weft::kernels::cuda
