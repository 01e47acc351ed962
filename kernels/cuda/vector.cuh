// Many bytes at a time: loads, stores and conversions that the kernels share. Device code only.

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace weft::kernels::cuda {

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// As many elements of T as one 16-byte access moves.
template <typename T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

// `from` and `to` are 16-byte aligned.
template <typename T>
__device__ __forceinline__ Vector<T> Load(const T* from) {
  Vector<T> out;
  *reinterpret_cast<uint4*>(&out) = *reinterpret_cast<const uint4*>(from);
  return out;
}
// Past the L1, which may hold lines from before the kernel in front wrote them when launches
// overlap.
template <typename T>
__device__ __forceinline__ Vector<T> LoadFresh(const T* from) {
  Vector<T> out;
  *reinterpret_cast<uint4*>(&out) = __ldcg(reinterpret_cast<const uint4*>(from));
  return out;
}
template <typename T>
__device__ __forceinline__ void Store(T* to, const Vector<T>& values) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&values);
}

// kWidth neighbouring elements as float: one, or 16-byte aligned vectors.
template <typename T, int kWidth>
__device__ __forceinline__ void Read(const T* from, float (&out)[kWidth]) {
  if constexpr (kWidth == 1) {
    out[0] = ToFloat(*from);
  } else {
#pragma unroll
    for (int begin = 0; begin < kWidth; begin += Vector<T>::kSize) {
      const Vector<T> values = Load(from + begin);
#pragma unroll
      for (int i = 0; i < Vector<T>::kSize; ++i) out[begin + i] = ToFloat(values.at[i]);
    }
  }
}

template <typename T, int kWidth>
__device__ __forceinline__ void Write(T* to, const float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    *to = FromFloat<T>(values[0]);
  } else {
#pragma unroll
    for (int begin = 0; begin < kWidth; begin += Vector<T>::kSize) {
      Vector<T> out;
#pragma unroll
      for (int i = 0; i < Vector<T>::kSize; ++i) out.at[i] = FromFloat<T>(values[begin + i]);
      Store(to + begin, out);
    }
  }
}

// Elements of a quad: 16 bytes of float32.
inline constexpr int kQuad = 4;

// Four neighbouring elements as float.
__device__ __forceinline__ float4 LoadQuad(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float4 LoadQuad(const __nv_bfloat16* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  const float2 low = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits.x));
  const float2 high = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(bits.y));
  return {low.x, low.y, high.x, high.y};
}
__device__ __forceinline__ void StoreQuad(float* to, float4 x) {
  *reinterpret_cast<float4*>(to) = x;
}
__device__ __forceinline__ void StoreQuad(__nv_bfloat16* to, float4 x) {
  uint2 bits;
  reinterpret_cast<__nv_bfloat162&>(bits.x) = __floats2bfloat162_rn(x.x, x.y);
  reinterpret_cast<__nv_bfloat162&>(bits.y) = __floats2bfloat162_rn(x.z, x.w);
  *reinterpret_cast<uint2*>(to) = bits;
}

}  // namespace weft::kernels::cuda
