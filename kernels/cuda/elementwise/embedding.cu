#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/embedding.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr int kThreadsMax = 256;
// Quads a thread holds: 16 bytes of the residual each, which is most of what is moved. (Sixteen
// bytes of a bf16 table a thread would leave gaps between a warp's stores.) Two, so that more loads
// are in flight.
constexpr int kQuads = 2;

// The table's row of the token at `row`; null when another rank holds it, or none is wanted.
template <typename T>
__device__ __forceinline__ const T* TokenRow(const EmbedParams& params, uint32_t row) {
  if (params.adds_positions) return nullptr;
  uint32_t id = params.ids[row];
  if (id == kTakeLastSample) id = params.last_sampled[params.slot[row]];
  if (id < params.vocab_begin || id >= params.vocab_end) return nullptr;
  return static_cast<const T*>(params.table) + size_t{id - params.vocab_begin} * params.hidden;
}

// Null without a position table.
template <typename T>
__device__ __forceinline__ const T* PositionRow(const EmbedParams& params, uint32_t row) {
  if (params.position_table == nullptr) return nullptr;
  return static_cast<const T*>(params.position_table) +
         size_t{params.positions[row]} * params.hidden;
}

template <typename T>
__global__ void __launch_bounds__(kThreadsMax) EmbedQuads(EmbedParams params) {
  const uint32_t row = blockIdx.x;
  const uint32_t quads = params.hidden / kQuad;
  const uint32_t begin = blockIdx.y * blockDim.x * kQuads + threadIdx.x;
  const T* token = TokenRow<T>(params, row);
  const T* position = PositionRow<T>(params, row);
  float* out = params.residual + size_t{row} * params.hidden;
  float4 sum[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = begin + i * blockDim.x;
    sum[i] = {0, 0, 0, 0};
    if (quad >= quads) continue;
    if (params.adds_positions) sum[i] = LoadQuad(out + quad * kQuad);
    if (token != nullptr) {
      const float4 x = LoadQuad(token + quad * kQuad);
      sum[i] = {x.x * params.scale, x.y * params.scale, x.z * params.scale, x.w * params.scale};
    }
    if (position != nullptr) {
      const float4 x = LoadQuad(position + quad * kQuad);
      sum[i] = {sum[i].x + x.x, sum[i].y + x.y, sum[i].z + x.z, sum[i].w + x.w};
    }
  }
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = begin + i * blockDim.x;
    if (quad < quads) *reinterpret_cast<float4*>(out + quad * kQuad) = sum[i];
  }
}

// Any size, one element a thread.
template <typename T>
__global__ void __launch_bounds__(kThreadsMax) EmbedElements(EmbedParams params) {
  const uint32_t row = blockIdx.x;
  const uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= params.hidden) return;
  const T* token = TokenRow<T>(params, row);
  const T* position = PositionRow<T>(params, row);
  float* out = params.residual + size_t{row} * params.hidden + i;
  float sum = params.adds_positions ? *out : 0.0f;
  if (token != nullptr) sum = ToFloat(token[i]) * params.scale;
  if (position != nullptr) sum += ToFloat(position[i]);
  *out = sum;
}

template <typename T>
void Launch(const EmbedParams& params, cudaStream_t stream) {
  const bool in_quads = params.hidden % kQuad == 0;
  const uint32_t per_thread = in_quads ? kQuad * kQuads : 1;
  const uint32_t threads_of_row = (params.hidden + per_thread - 1) / per_thread;
  const uint32_t threads =
      threads_of_row >= kThreadsMax ? kThreadsMax : (threads_of_row + kWarp - 1) / kWarp * kWarp;
  const dim3 grid(params.rows, (threads_of_row + threads - 1) / threads);
  if (in_quads) {
    EmbedQuads<T><<<grid, threads, 0, stream>>>(params);
  } else {
    EmbedElements<T><<<grid, threads, 0, stream>>>(params);
  }
}

}  // namespace

cudaError_t Embed(const EmbedParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.hidden == 0) return cudaSuccess;
  if (params.type == DType::kFloat32) {
    Launch<float>(params, stream);
  } else {
    Launch<__nv_bfloat16>(params, stream);
  }
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda
