#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/norm_rotate.cuh"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/elementwise/rotate.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr int kThreads = 128;
// Elements of a vector access: 16 bytes of bf16, twice 16 of float32.
constexpr int kOctet = 8;

// As Read, of what the kernel in front wrote.
template <typename T, int kWidth>
__device__ __forceinline__ void ReadFresh(const T* from, float (&out)[kWidth]) {
  if constexpr (kWidth == 1) {
    out[0] = ToFloat(__ldcg(from));
  } else {
#pragma unroll
    for (int begin = 0; begin < kWidth; begin += Vector<T>::kSize) {
      const Vector<T> values = LoadFresh(from + begin);
#pragma unroll
      for (int i = 0; i < Vector<T>::kSize; ++i) out[begin + i] = ToFloat(values.at[i]);
    }
  }
}

// With the bias at the same place of the row.
template <typename T, int kWidth>
__device__ __forceinline__ void ReadBiased(const T* from, const T* bias, float (&out)[kWidth]) {
  ReadFresh(from, out);
  if (bias == nullptr) return;
  float add[kWidth];
  Read(bias, add);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) out[i] += add[i];
}

// `table`: (cos, sin) of the first pair.
template <int kWidth>
__device__ __forceinline__ void Rotate(const float2* table, float (&low)[kWidth],
                                       float (&high)[kWidth]) {
  float turn[2 * kWidth];
  if constexpr (kWidth == 1) {
    turn[0] = table->x;
    turn[1] = table->y;
  } else {
    Read(reinterpret_cast<const float*>(table), turn);
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    RotatePair({turn[2 * i], turn[2 * i + 1]}, &low[i], &high[i]);
  }
}

// A thread takes one unit of a head: kWidth elements of its first half with those of the second
// that they are rotated with (value heads go the same way, unrotated), or kWidth elements beyond
// the rotated ones. Everything a thread writes in place it alone has read.
template <typename T, typename KvT, int kWidth>
__global__ void __launch_bounds__(kThreads) RotateUnits(RotateAndAppendParams params) {
  // In this order: the next kernel may rely on what is in front of this one.
  WaitForEarlierKernels();
  AllowNextKernel();
  const uint32_t row = blockIdx.x;
  const uint32_t half = params.rotary_dim / 2;
  const uint32_t head_dim = params.kv.head_dim;
  const uint32_t pairs = half / kWidth;
  const uint32_t units = pairs + (head_dim - params.rotary_dim) / kWidth;
  const uint32_t at = blockIdx.y * kThreads + threadIdx.x;
  const uint32_t head = at / units;
  if (head >= params.query_heads + 2 * params.kv.kv_heads) return;
  const uint32_t unit = at % units;
  const bool in_pair = unit < pairs;
  const uint32_t element = in_pair ? unit * kWidth : params.rotary_dim + (unit - pairs) * kWidth;
  const size_t in_row = size_t{head} * head_dim + element;
  const T* from = static_cast<const T*>(params.qkv) + size_t{row} * params.qkv_stride + in_row;
  const T* bias = static_cast<const T*>(params.bias);
  if (bias != nullptr) bias += in_row;

  float low[kWidth];
  float high[kWidth];
  ReadBiased(from, bias, low);
  if (in_pair) {
    ReadBiased(from + half, bias != nullptr ? bias + half : nullptr, high);
    if (head < params.query_heads + params.kv.kv_heads) {
      Rotate(params.rotary + size_t{__ldcg(params.positions + row)} * half + element, low, high);
    }
  }
  if (head < params.query_heads) {
    T* to = static_cast<T*>(params.query) + size_t{row} * params.query_stride + in_row;
    Write(to, low);
    if (in_pair) Write(to + half, high);
  } else {
    const CacheRow place = FindCacheRow(params, row, __ldcg(params.positions + row));
    if (!place.present) return;
    KvT* to = CacheHead<KvT>(params.kv, place, head - params.query_heads);
    Write(to + element, low);
    if (in_pair) Write(to + element + half, high);
  }
}

template <typename T, typename KvT, int kWidth>
cudaError_t LaunchWidth(const RotateAndAppendParams& params, cudaStream_t stream) {
  const uint32_t units = (params.kv.head_dim - params.rotary_dim / 2) / kWidth;
  const uint32_t threads = (params.query_heads + 2 * params.kv.kv_heads) * units;
  const dim3 grid(params.rows, (threads + kThreads - 1) / kThreads);
  return LaunchKernel(RotateUnits<T, KvT, kWidth>, grid, kThreads, 0, params.dependent, stream,
                      params);
}

template <typename T, typename KvT>
cudaError_t LaunchWithNorm(const RotateAndAppendParams& params, cudaStream_t stream) {
  const uint32_t heads = params.query_heads + 2 * params.kv.kv_heads;
  const dim3 grid(params.rows, (heads + kNormRotateHeads - 1) / kNormRotateHeads);
  const auto kernel = params.kv.head_dim == 64    ? NormRotate<T, KvT, 1>
                      : params.kv.head_dim == 128 ? NormRotate<T, KvT, 2>
                                                  : NormRotate<T, KvT, 4>;
  return LaunchKernel(kernel, grid, kNormRotateThreads, 0, params.dependent, stream, params);
}

template <typename T, typename KvT>
cudaError_t Launch(const RotateAndAppendParams& params, cudaStream_t stream) {
  if (params.head_norm.query != nullptr) return LaunchWithNorm<T, KvT>(params, stream);
  const bool in_octets = params.kv.head_dim % kOctet == 0 &&
                         params.rotary_dim % (2 * kOctet) == 0 && params.qkv_stride % kOctet == 0 &&
                         params.query_stride % kOctet == 0;
  return in_octets ? LaunchWidth<T, KvT, kOctet>(params, stream)
                   : LaunchWidth<T, KvT, 1>(params, stream);
}

}  // namespace

cudaError_t RotateAndAppend(const RotateAndAppendParams& given, cudaStream_t stream) {
  RotateAndAppendParams params = given;
  if (params.rotary == nullptr) params.rotary_dim = 0;
  const uint32_t heads = params.query_heads + 2 * params.kv.kv_heads;
  if (params.rows == 0 || heads == 0 || params.kv.head_dim == 0) return cudaSuccess;
  if (params.rotary_dim % 2 != 0 || params.rotary_dim > params.kv.head_dim) {
    return cudaErrorInvalidValue;
  }
  if (params.head_norm.query != nullptr &&
      (params.bias != nullptr || params.head_norm.key == nullptr ||
       !NormsAndRotates(params.kv.head_dim) ||
       (params.rotary_dim != 0 && params.rotary_dim != params.kv.head_dim))) {
    return cudaErrorInvalidValue;
  }
  const bool wide_cache = params.kv.type == DType::kFloat32;
  if (params.type == DType::kFloat32) {
    return wide_cache ? Launch<float, float>(params, stream)
                      : Launch<float, __nv_bfloat16>(params, stream);
  }
  return wide_cache ? Launch<__nv_bfloat16, float>(params, stream)
                    : Launch<__nv_bfloat16, __nv_bfloat16>(params, stream);
}

}  // namespace weft::kernels::cuda
