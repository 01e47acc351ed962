// The sampler's second and third pass, for filtered rows, a block a chunk: a histogram of the
// distances from the row's best score together with the row's mass, then the list of the tokens
// that may survive.

#include <cuda_runtime.h>

#include "kernels/cuda/device/sample_work.cuh"

namespace weft::kernels::cuda {
namespace {

// Temperatures below MayWin's distance that lists still reach: what lies deeper can neither win nor
// move a sum (weight below e^-32).
constexpr float kReserve = 13.0f;
constexpr float kDistanceMax = 33.0f;
constexpr uint32_t kBinsPerThread = kHistogramBins / kScanThreads;

// How a row's scores map to bins.
struct Binning {
  float best;
  float temperature;
  // Bins per unit of score.
  float scale;

  __device__ __forceinline__ bool Has(float x) const {
    return x > -kInfinity && MayWin(x, best, temperature, kReserve);
  }
  // Grows with the distance.
  __device__ __forceinline__ uint32_t BinOf(float x) const {
    return static_cast<uint32_t>(
        fminf(__fmul_rn(__fsub_rn(best, x), scale), static_cast<float>(kHistogramBins - 1)));
  }
};

__device__ __forceinline__ Binning BinningOf(const SamplerWork& work, const SamplingRow& row,
                                             uint32_t r) {
  const ChunkRange range = RangeOf(work, r);
  const float width = fminf(range.max - range.min, kDistanceMax * row.temperature);
  // NaN or infinite for flat or empty rows: then everything is in bin 0.
  const float scale = static_cast<float>(kHistogramBins) / width;
  return {range.max, row.temperature, scale > 0 && scale < kInfinity ? scale : 0.0f};
}

template <typename Visit>
__device__ __forceinline__ void ForChunk(const float* scores, uint32_t chunk, uint32_t count,
                                         Visit visit) {
  float4 quads[kTileQuads];
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    quads[i] = LoadScores(scores, QuadId(chunk, i), count);
  }
#pragma unroll
  for (uint32_t i = 0; i < kTileQuads; ++i) {
    const uint32_t id = QuadId(chunk, i);
    visit(quads[i].x, id);
    visit(quads[i].y, id + 1);
    visit(quads[i].z, id + 2);
    visit(quads[i].w, id + 3);
  }
}

__global__ void __launch_bounds__(kScanThreads)
    CountChunk(const SamplerParams params, const SamplerWork work) {
  __shared__ uint32_t bins[kHistogramBins];
  __shared__ uint64_t scratch[kWarp];
  const uint32_t r = blockIdx.y;
  const SamplingRow& row = params.row_params[r];
  if (KindOf(row, params) != RowKind::kFiltered) return;
  for (uint32_t i = threadIdx.x; i < kHistogramBins; i += kScanThreads) bins[i] = 0;
  const Binning binning = BinningOf(work, row, r);
  __syncthreads();
  uint64_t mass = 0;
  ForChunk(ScoreRow(params, work, row, r), blockIdx.x, params.vocabulary, [&](float x, uint32_t) {
    if (!binning.Has(x)) return;
    mass += Mass(Weight(x, binning.best, binning.temperature));
    atomicAdd(&bins[binning.BinOf(x)], 1u);
  });
  // Its barrier comes after all counts.
  mass = BlockSum64(mass, scratch);
  if (threadIdx.x == 0) atomicAdd(&work.states[r].total, static_cast<unsigned long long>(mass));
  for (uint32_t i = threadIdx.x; i < kHistogramBins; i += kScanThreads) {
    if (bins[i] > 0) atomicAdd(&work.histograms[size_t{r} * kHistogramBins + i], bins[i]);
  }
}

// Sums over the bins of the threads before this one.
struct Prefix {
  uint32_t count;
  float mass;
};
__device__ Prefix PrefixOf(uint32_t count, float mass, Prefix* scratch) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t warp = threadIdx.x / kWarp;
  Prefix sum = {count, mass};
#pragma unroll
  for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t other_count = __shfl_up_sync(kAllLanes, sum.count, offset);
    const float other_mass = __shfl_up_sync(kAllLanes, sum.mass, offset);
    if (lane < offset) continue;
    sum.count += other_count;
    sum.mass += other_mass;
  }
  if (lane == kWarp - 1) scratch[warp] = sum;
  Prefix before = {__shfl_up_sync(kAllLanes, sum.count, 1), __shfl_up_sync(kAllLanes, sum.mass, 1)};
  if (lane == 0) before = {0, 0};
  __syncthreads();
  for (uint32_t i = 0; i < warp; ++i) {
    before.count += scratch[i].count;
    before.mass += scratch[i].mass;
  }
  return before;
}

// What the last bin of the list has to reach.
struct Wanted {
  uint32_t count;
  float mass;
  uint32_t bin;
};
__device__ __forceinline__ Wanted WantedOf(const SamplingRow& row, const Binning& binning,
                                           uint64_t total, uint32_t vocabulary) {
  if (UsesTopK(row, vocabulary)) return {row.top_k, kInfinity, kHistogramBins - 1};
  if (row.top_p < 1) {
    // A little more, against the rounding of the sums.
    const float mass = row.top_p * (static_cast<float>(total) / kMassScale) * 1.0001f;
    return {0xffffffffu, fmaxf(mass, 1e-20f), kHistogramBins - 1};
  }
  // min-p alone.
  const float distance = -logf(row.min_p) * row.temperature;
  const float bin = fmaxf(distance, 0.0f) * binning.scale * 1.0001f + 1.0f;
  return {0xffffffffu, kInfinity,
          static_cast<uint32_t>(fminf(bin, static_cast<float>(kHistogramBins - 1)))};
}

// The last bin of the list; sets *listed to the tokens up to it.
__device__ uint32_t LastBin(const uint32_t* histogram, const Wanted& wanted, const Binning& binning,
                            Prefix* scratch, uint32_t* shared, uint32_t* listed) {
  const uint32_t first = threadIdx.x * kBinsPerThread;
  uint32_t counts[kBinsPerThread];
  float masses[kBinsPerThread];
  // Of a token at the far side of a bin; a bin's true mass is a little more.
  const float step = binning.scale > 0 ? 1.0f / (binning.scale * binning.temperature) : 0.0f;
  uint32_t count = 0;
  float mass = 0;
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    counts[i] = histogram[first + i];
    masses[i] = static_cast<float>(counts[i]) * expf(-step * static_cast<float>(first + i + 1));
    count += counts[i];
    mass += masses[i];
  }
  Prefix sum = PrefixOf(count, mass, scratch);
  uint32_t last = kHistogramBins - 1;
  uint32_t within[kBinsPerThread];
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    sum.count += counts[i];
    sum.mass += masses[i];
    within[i] = sum.count;
    const bool reached =
        sum.count >= wanted.count || sum.mass >= wanted.mass || first + i >= wanted.bin;
    if (reached && first + i < last) last = first + i;
  }
  last = __reduce_min_sync(kAllLanes, last);
  if (threadIdx.x == 0) shared[0] = kHistogramBins - 1;
  __syncthreads();
  if (threadIdx.x % kWarp == 0) atomicMin(&shared[0], last);
  __syncthreads();
  last = shared[0];
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    if (first + i == last) shared[1] = within[i];
  }
  __syncthreads();
  *listed = shared[1];
  return last;
}

__global__ void __launch_bounds__(kScanThreads)
    ListChunk(const SamplerParams params, const SamplerWork work) {
  __shared__ Prefix scratch[kScanThreads / kWarp];
  __shared__ uint32_t shared[2];
  const uint32_t r = blockIdx.y;
  const SamplingRow& row = params.row_params[r];
  if (KindOf(row, params) != RowKind::kFiltered) return;
  RowState& state = work.states[r];
  const bool leader = blockIdx.x == 0 && threadIdx.x == 0;
  if (row.typical_p < 1 && !UsesTopK(row, params.vocabulary)) {
    if (leader) state.whole_row = 1;
    return;
  }
  const Binning binning = BinningOf(work, row, r);
  uint32_t listed;
  const uint32_t last = LastBin(work.histograms + size_t{r} * kHistogramBins,
                                WantedOf(row, binning, state.total, params.vocabulary), binning,
                                scratch, shared, &listed);
  if (listed > kCandidatesMax) {
    if (leader) state.whole_row = 1;
    return;
  }
  Candidate* list = work.candidates + size_t{r} * kCandidatesMax;
  ForChunk(ScoreRow(params, work, row, r), blockIdx.x, params.vocabulary,
           [&](float x, uint32_t id) {
             if (!binning.Has(x) || binning.BinOf(x) > last) return;
             const uint32_t place = atomicAdd(&state.candidates, 1u);
             if (place < kCandidatesMax) list[place] = {x, id};
           });
}

}  // namespace

void LaunchFilter(const SamplerParams& params, const SamplerWork& work, cudaStream_t stream) {
  const dim3 grid(work.chunks, params.rows);
  CountChunk<<<grid, kScanThreads, 0, stream>>>(params, work);
  ListChunk<<<grid, kScanThreads, 0, stream>>>(params, work);
}

}  // namespace weft::kernels::cuda
