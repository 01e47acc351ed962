#include "kernels/cuda/gemm/gemv.h"

#include <cuda_runtime.h>

#include "kernels/cuda/gemm/gemv_input.cuh"
#include "kernels/cuda/gemm/gemv_multiply.cuh"
#include "kernels/cuda/gemm/gemv_output.cuh"
#include "kernels/cuda/gemm/gemv_stream.cuh"
#include "kernels/cuda/multiprocessors.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/dependent.cuh"

namespace weft::kernels::cuda {
namespace {

// The warps that multiply.
template <uint32_t kGroup, bool kLayerNorm, uint32_t kElements>
__device__ __forceinline__ void MultiplyBlock(const GemvParams& params, const GemvPlan& plan,
                                              char* shared) {
  constexpr uint32_t kChunkVectors = kElements / GemvShape::kVector;
  auto* x = reinterpret_cast<uint4*>(shared + GemvShape::kRing +
                                     plan.slots * GemvChunk<kElements>::kSlotBytes);
  auto* sums = reinterpret_cast<float*>(shared + GemvShape::kSums);
  // What LayerNorm does not hold it reads three times; the small chunks' blocks lack the registers.
  constexpr uint32_t kHeld = kLayerNorm && kElements != 512 ? 4 : 2;
  GemvInput<kGroup, kLayerNorm, kHeld> input(params, x, plan.x_stride, shared);
  GemvMultiplier<kElements> multiplier(SharedAddress(shared), plan.slots);
  // Row `lane / 4` of the input; the lanes of rows that there are not read zeros.
  const uint32_t row = threadIdx.x % kWarp / 4;
  multiplier.ReadRow(row < params.rows ? x + row * plan.x_stride : nullptr);
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
template <uint32_t kGroup, bool kLayerNorm, uint32_t kElements>
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
    PrefetchNext<kElements>(params.next, plan.next);
    stream.End();
  } else {
    MultiplyBlock<kGroup, kLayerNorm, kElements>(params, plan, shared);
  }
}

template <uint32_t kGroup, bool kLayerNorm, uint32_t kElements>
cudaError_t Launch(const GemvParams& params, const GemvTuning& tuning, cudaStream_t stream) {
  uint32_t multiprocessors = 0;
  cudaError_t error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  GemvPlan plan;
  if (!plan.Make<kElements>(params, tuning, multiprocessors)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = MultiplyRows<kGroup, kLayerNorm, kElements>;
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
  // Plans take LayerNorm for one row alone (shard/device/cuda/planner.h): more go one at a time.
  if (params.layer_norm) return Launch<1, true, kElements>(params, tuning, stream);
  if (params.rows == 1) return Launch<1, false, kElements>(params, tuning, stream);
  // The small chunks' blocks have the registers for no more than one row at a time.
  if constexpr (kElements != 512) {
    if (params.rows > 2) return Launch<4, false, kElements>(params, tuning, stream);
    if (params.rows == 2) return Launch<2, false, kElements>(params, tuning, stream);
  }
  return Launch<1, false, kElements>(params, tuning, stream);
}

bool AreWholeHeads(const RotateAndAppendParams& heads, uint32_t n) {
  const KvLayer& kv = heads.kv;
  return GemvPairs::Fit(n, kv.head_dim) && n / kv.head_dim == heads.query_heads + 2 * kv.kv_heads &&
         (heads.rotary == nullptr || heads.rotary_dim == kv.head_dim) &&
         kv.type == DType::kBfloat16;
}

bool IsValid(const GemvParams& params) {
  if (params.rows > kGemvRowsMax || params.k == 0 || params.k % GemvShape::kVector != 0) {
    return false;
  }
  if (!IsValidNext(params.next)) return false;
  if (params.norm_bias != nullptr && !params.layer_norm) return false;
  if (params.layer_norm && params.residual_in == nullptr) return false;
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
