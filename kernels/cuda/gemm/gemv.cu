#include "kernels/cuda/gemm/gemv.h"

#include <cuda_runtime.h>

#include "kernels/cuda/gemm/gemv_input.cuh"
#include "kernels/cuda/gemm/gemv_output.cuh"
#include "kernels/cuda/gemm/gemv_stream.cuh"
#include "kernels/cuda/multiprocessors.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace weft::kernels::cuda {
namespace {

// A warp's sums of a tile, over its slices of the chunks: two chains, to be added.
struct GemvSums {
  float even[4] = {};
  float odd[4] = {};
};

// A warp that multiplies.
template <uint32_t kElements>
class Multiplier {
 public:
  __device__ __forceinline__ Multiplier(const GemvParams& params, uint32_t shared, const uint4* x,
                                        const GemvPlan& plan)
      : slot_{shared, plan.slots} {
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t lane = threadIdx.x % kWarp;
    element_ = warp * Chunk::kSliceElements + lane % 4 * GemvShape::kVector;
    weights_ = lane / 4 * Chunk::kRowBytes + element_ * 2;
    // The lanes of rows that the input does not have read zeros.
    const bool has_row = lane / 4 < params.rows;
    x_ = has_row ? SharedAddress(x + lane / 4 * plan.x_stride) + element_ * 2
                 : shared + GemvShape::kZeros;
    x_chunk_ = has_row ? Chunk::kBytes : 0;
    x_step_ = has_row ? GemvShape::kStep * 2 : 0;
  }

  // The columns of the pair of tiles that comes next; none at the end.
  __device__ __forceinline__ GemvRange NextPair(char* shared) const {
    WaitForPhase(slot_.Full(), slot_.parity);
    return *slot_.Columns(shared);
  }

  // A tile's next chunks, from `first` to `last`, the panel's.
  __device__ __forceinline__ void AddPanel(uint32_t k, uint32_t first, uint32_t last,
                                           GemvSums* sums) {
    uint32_t x = x_;
#pragma unroll 1
    for (uint32_t chunk = first; chunk < last; ++chunk) {
      WaitForPhase(slot_.Full(), slot_.parity);
      const uint32_t left = k - chunk * kElements;
      if (left >= kElements) {
        AddChunk<false>(x, left, sums);
      } else {
        AddChunk<true>(x, left, sums);
      }
      __syncwarp();
      if (threadIdx.x % kWarp == 0) Arrive(slot_.Empty());
      slot_.Advance();
      x += x_chunk_;
    }
  }

 private:
  using Chunk = GemvChunk<kElements>;

  // Which sixteen of the 32 elements of a step a matrix instruction takes, and in which order, is
  // the same for weights and input and otherwise free: here a lane's are those that it loads.
  template <bool kPartial>
  __device__ __forceinline__ void AddChunk(uint32_t x, uint32_t left, GemvSums* sums) const {
    const uint32_t weights = slot_.Weights() + weights_;
#pragma unroll
    for (uint32_t step = 0; step < Chunk::kSliceSteps; step += 2) {
      uint4 low[2];
      uint4 high[2];
      uint4 in[2];
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t from = weights + (step + i) * GemvShape::kStep * 2;
        low[i] = LoadShared(from);
        high[i] = LoadShared(from + 8 * Chunk::kRowBytes);
        in[i] = LoadShared(x + (step + i) * x_step_);
        // Nobody wrote what lies there: it may be NaN, of the weights and of the input.
        if (kPartial && element_ + (step + i) * GemvShape::kStep >= left) {
          low[i] = high[i] = in[i] = make_uint4(0, 0, 0, 0);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        MultiplyAdd(sums->even, {low[i].x, high[i].x, low[i].y, high[i].y}, in[i].x, in[i].y);
        MultiplyAdd(sums->odd, {low[i].z, high[i].z, low[i].w, high[i].w}, in[i].z, in[i].w);
      }
    }
  }

  GemvSlot<kElements> slot_;
  // Of the chunk, the lane's first.
  uint32_t element_;
  uint32_t weights_;
  uint32_t x_;
  uint32_t x_chunk_;
  uint32_t x_step_;
};

// The warps that multiply.
template <uint32_t kGroup, uint32_t kElements>
__device__ __forceinline__ void MultiplyBlock(const GemvParams& params, const GemvPlan& plan,
                                              char* shared) {
  constexpr uint32_t kChunkVectors = kElements / GemvShape::kVector;
  auto* x = reinterpret_cast<uint4*>(shared + GemvShape::kRing +
                                     plan.slots * GemvChunk<kElements>::kSlotBytes);
  auto* sums = reinterpret_cast<float*>(shared + GemvShape::kSums);
  GemvInput<kGroup> input(params, x, plan.x_stride,
                          reinterpret_cast<float*>(shared + GemvShape::kNormSums),
                          reinterpret_cast<float*>(shared + GemvShape::kScales));
  Multiplier<kElements> multiplier(params, SharedAddress(shared), x, plan);
  const GemvHeads heads(params);
  const uint32_t width = plan.pairs.Width();
  WaitForEarlierKernels();
  input.FillFirst(params, GemvPanel(params, plan, 0, kChunkVectors));
  GemvBarrier();
  bool is_first = true;
#pragma unroll 1
  while (true) {
    const GemvRange pair = multiplier.NextPair(shared);
    if (pair.begin >= pair.end) break;
    const GemvOut out(params, plan, pair, heads);
    GemvSums of_tiles[GemvShape::kTiles];
#pragma unroll 1
    for (uint32_t panel = 0; panel < plan.panels; ++panel) {
      if (plan.panels > 1 && !is_first) {
        GemvBarrier();
        input.Fill(params, GemvPanel(params, plan, panel, kChunkVectors));
        GemvBarrier();
      }
      is_first = false;
      const uint32_t first = panel * plan.panel_chunks;
      const uint32_t last = min(first + plan.panel_chunks, plan.chunks);
#pragma unroll
      for (uint32_t t = 0; t < GemvShape::kTiles; ++t) {
        if (pair.begin + t * width >= pair.end) break;
        multiplier.AddPanel(params.k, first, last, &of_tiles[t]);
      }
    }
    GemvBarrier();  // the sums of the two tiles before have been read
#pragma unroll
    for (uint32_t t = 0; t < GemvShape::kTiles; ++t) {
      const GemvSums& of = of_tiles[t];
      auto* to = reinterpret_cast<float4*>(sums + t * GemvShape::kWarps * GemvShape::kTileSums);
      to[threadIdx.x] = make_float4(of.even[0] + of.odd[0], of.even[1] + of.odd[1],
                                    of.even[2] + of.odd[2], of.even[3] + of.odd[3]);
    }
    GemvBarrier();
    out.Write(params, sums);
  }
}

// Of the small chunks, two blocks of half the shared memory fit with their registers too.
template <uint32_t kGroup, uint32_t kElements>
__global__ void __launch_bounds__(GemvShape::kAllThreads, kElements == 512 ? 2 : 1)
    MultiplyRows(const __grid_constant__ GemvParams params, const __grid_constant__ GemvPlan plan) {
  extern __shared__ __align__(128) char shared[];
  const uint32_t base = SharedAddress(shared);
  if (threadIdx.x == GemvShape::kThreads) InitGemvBarriers(base, plan.slots);
  if (threadIdx.x == 0) {
    *reinterpret_cast<uint4*>(shared + GemvShape::kZeros) = make_uint4(0, 0, 0, 0);
  }
  // Now, and not when the end is near. The next launch's blocks find room only where a block of
  // this launch or the one before has left, one on each multiprocessor; with room left by two they
  // would crowd there. And their launch takes time that passes meanwhile.
  AllowNextKernel();
  __syncthreads();
  if (threadIdx.x >= GemvShape::kThreads) {
    GemvStream<kElements> stream(shared, plan.slots);
    stream.Run(params, plan);
    stream.PrefetchNext(params.next, plan);
    stream.End();
  } else {
    MultiplyBlock<kGroup, kElements>(params, plan, shared);
  }
}

template <uint32_t kGroup, uint32_t kElements>
cudaError_t Launch(const GemvParams& params, const GemvTuning& tuning, cudaStream_t stream) {
  uint32_t multiprocessors = 0;
  cudaError_t error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  GemvPlan plan;
  if (!plan.Make<kElements>(params, tuning, multiprocessors)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = MultiplyRows<kGroup, kElements>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(GemvTuning{}.shared_bytes));
  if (error != cudaSuccess) return error;
  // Whatever this launch needs: between launches that divide the L1 differently it would be idle.
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  return LaunchKernel(kernel, dim3(plan.grid), GemvShape::kAllThreads, plan.shared_bytes,
                      params.dependent, stream, params, plan);
}

template <uint32_t kElements>
cudaError_t LaunchGroup(const GemvParams& params, const GemvTuning& tuning, cudaStream_t stream) {
  if (params.rows == 1) return Launch<1, kElements>(params, tuning, stream);
  // The small chunks' blocks have the registers for no more than one row at a time.
  if constexpr (kElements != 512) {
    if (params.rows > 2) return Launch<4, kElements>(params, tuning, stream);
    if (params.rows == 2) return Launch<2, kElements>(params, tuning, stream);
  }
  return Launch<1, kElements>(params, tuning, stream);
}

bool HasPairs(uint32_t n, uint32_t head_dim) {
  return head_dim != 0 && head_dim % 2 == 0 && n % head_dim == 0;
}

bool AreWholeHeads(const RotateAndAppendParams& heads, uint32_t n) {
  const KvLayer& kv = heads.kv;
  return HasPairs(n, kv.head_dim) && n / kv.head_dim == heads.query_heads + 2 * kv.kv_heads &&
         (heads.rotary == nullptr || heads.rotary_dim == kv.head_dim) &&
         kv.type == DType::kBfloat16;
}

bool IsValid(const GemvParams& params) {
  if (params.rows > kGemvRowsMax || params.k == 0 || params.k % GemvShape::kVector != 0) {
    return false;
  }
  const GemvNext& next = params.next;
  if (next.weight != nullptr && (next.k == 0 || next.k % GemvShape::kVector != 0)) return false;
  if (next.epilogue == GemvEpilogue::kRotateAppend && !HasPairs(next.n, next.head_dim)) {
    return false;
  }
  switch (params.epilogue) {
    case GemvEpilogue::kStore:
      return true;
    case GemvEpilogue::kAccumulate:
      return params.out_type == DType::kFloat32;
    case GemvEpilogue::kActivated:
      return params.out_type == DType::kBfloat16;
    case GemvEpilogue::kGated:
      return params.out_type == DType::kBfloat16 && params.n % 2 == 0 && params.bias == nullptr;
    case GemvEpilogue::kRotateAppend:
      return AreWholeHeads(params.heads, params.n) && params.bias == nullptr;
  }
  return false;
}

}  // namespace

cudaError_t Gemv(const GemvParams& params, cudaStream_t stream) {
  return GemvTuned(params, GemvTuning{}, stream);
}

cudaError_t GemvTuned(const GemvParams& params, const GemvTuning& tuning, cudaStream_t stream) {
  if (!IsValid(params)) return cudaErrorInvalidValue;
  if (params.rows == 0 || params.n == 0) return cudaSuccess;
  if (tuning.chunk == 512) return LaunchGroup<512>(params, tuning, stream);
  if (tuning.chunk == 1024) return LaunchGroup<1024>(params, tuning, stream);
  return cudaErrorInvalidValue;
}

}  // namespace weft::kernels::cuda
