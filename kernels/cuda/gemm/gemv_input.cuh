// Gemv's input in shared memory: a panel of it as bf16, copied, or normalised from the residual.
// For the warps that multiply. Device code only.

#pragma once

#include "kernels/cuda/gemm/gemv_work.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

__device__ __forceinline__ float2 UnpackBfloat16(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// Eight elements of the residual.
struct GemvOctet {
  float4 low;
  float4 high;

  __device__ __forceinline__ void Load(const float* from) {
    *reinterpret_cast<uint4*>(&low) = LoadWritten(static_cast<const void*>(from));
    *reinterpret_cast<uint4*>(&high) = LoadWritten(static_cast<const void*>(from + 4));
  }
  __device__ __forceinline__ float Squares() const {
    const float first = (low.x * low.x + low.y * low.y) + (low.z * low.z + low.w * low.w);
    return first + ((high.x * high.x + high.y * high.y) + (high.z * high.z + high.w * high.w));
  }
  // Times scale, times weight, rounded once, as kernels/cuda/elementwise/norm.cu does.
  __device__ __forceinline__ uint4 Normalised(float scale, uint4 weight) const {
    const float2 a = UnpackBfloat16(weight.x);
    const float2 b = UnpackBfloat16(weight.y);
    const float2 c = UnpackBfloat16(weight.z);
    const float2 d = UnpackBfloat16(weight.w);
    return {PackBfloat16(low.x * scale * a.x, low.y * scale * a.y),
            PackBfloat16(low.z * scale * b.x, low.w * scale * b.y),
            PackBfloat16(high.x * scale * c.x, high.y * scale * c.y),
            PackBfloat16(high.z * scale * d.x, high.w * scale * d.y)};
  }
};

// Vectors of eight elements of k.
struct GemvPanel {
  uint32_t first;
  // Those that k has.
  uint32_t count;

  // `chunk`: vectors of a chunk.
  __device__ __forceinline__ GemvPanel(const GemvParams& params, const GemvPlan& plan,
                                       uint32_t panel, uint32_t chunk)
      : first(panel * plan.panel_chunks * chunk),
        count(min(plan.panel_chunks * chunk, params.k / GemvShape::kVector - first)) {}
};

// Takes kGroup rows at a time, of which the last group may have fewer.
template <uint32_t kGroup>
class GemvInput {
 public:
  // Before the wait for earlier kernels; reads nothing that they write. In shared memory: `x`,
  // `stride` vectors from row to row; `sums`, kGroup floats a warp; `scales`, one a row.
  __device__ __forceinline__ GemvInput(const GemvParams& params, uint4* x, uint32_t stride,
                                       float* sums, float* scales)
      : x_(x), stride_(stride), sums_(sums), scales_(scales) {
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      weight_[i] = make_uint4(0, 0, 0, 0);
      if (params.residual_in != nullptr && vector < Vectors(params)) {
        weight_[i] = NormWeight(params, vector);
      }
    }
  }

  // The first panel. A barrier has to follow.
  __device__ __forceinline__ void FillFirst(const GemvParams& params, const GemvPanel& panel) {
    if (params.residual_in == nullptr) return Copy(params, panel);
#pragma unroll 1
    for (uint32_t row = 0; row < params.rows; row += kGroup) {
      GemvOctet held[kGroup][kHeld] = {};
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) {
        const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
        if (vector >= Vectors(params)) break;
#pragma unroll
        for (uint32_t r = 0; r < kGroup; ++r) {
          if (row + r < params.rows) held[r][i].Load(Residual(params, row + r, vector));
        }
      }
      ComputeScales(params, row, held);
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) {
        const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
        if (vector >= panel.count) break;
#pragma unroll
        for (uint32_t r = 0; r < kGroup; ++r) {
          if (row + r >= params.rows) break;
          x_[(row + r) * stride_ + vector] = held[r][i].Normalised(scales_[row + r], weight_[i]);
        }
      }
    }
    Normalise(params, panel, kHeld * GemvShape::kThreads);
  }

  // Any panel, after FillFirst. A barrier has to stand before it and to follow.
  __device__ __forceinline__ void Fill(const GemvParams& params, const GemvPanel& panel) {
    if (params.residual_in == nullptr) {
      Copy(params, panel);
    } else {
      Normalise(params, panel, 0);
    }
  }

 private:
  // Vectors of the residual's rows that a thread keeps between the sum and the output.
  static constexpr uint32_t kHeld = 2;

  static __device__ __forceinline__ uint32_t Vectors(const GemvParams& params) {
    return params.k / GemvShape::kVector;
  }
  static __device__ __forceinline__ const float* Residual(const GemvParams& params, uint32_t row,
                                                          uint32_t vector) {
    return params.residual_in + size_t{row} * params.k + size_t{vector} * GemvShape::kVector;
  }
  static __device__ __forceinline__ uint4 NormWeight(const GemvParams& params, uint32_t vector) {
    return __ldg(static_cast<const uint4*>(params.norm_weight) + vector);
  }

  // All threads see the rows' factors afterwards.
  __device__ __forceinline__ void ComputeScales(const GemvParams& params, uint32_t row,
                                                const GemvOctet (&held)[kGroup][kHeld]) {
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (uint32_t r = 0; r < kGroup; ++r) {
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) sum += held[r][i].Squares();
      const uint32_t end = row + r < params.rows ? Vectors(params) : 0;
#pragma unroll 1
      for (uint32_t vector = threadIdx.x + kHeld * GemvShape::kThreads; vector < end;
           vector += GemvShape::kThreads) {
        GemvOctet octet;
        octet.Load(Residual(params, row + r, vector));
        sum += octet.Squares();
      }
      sum = WarpSum(sum);
      if (lane == 0) sums_[r * GemvShape::kWarps + warp] = sum;
    }
    GemvBarrier();
    if (threadIdx.x < kGroup) {
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < GemvShape::kWarps; ++i) {
        sum += sums_[threadIdx.x * GemvShape::kWarps + i];
      }
      scales_[row + threadIdx.x] = rsqrtf(sum / params.k + params.epsilon);
    }
    GemvBarrier();
  }

  // The panel from its vector `begin` on.
  __device__ __forceinline__ void Normalise(const GemvParams& params, const GemvPanel& panel,
                                            uint32_t begin) {
#pragma unroll 1
    for (uint32_t at = begin + threadIdx.x; at < panel.count; at += GemvShape::kThreads) {
      const uint32_t vector = panel.first + at;
      const uint4 weight = NormWeight(params, vector);
#pragma unroll kGroup
      for (uint32_t r = 0; r < params.rows; ++r) {
        GemvOctet octet;
        octet.Load(Residual(params, r, vector));
        x_[r * stride_ + at] = octet.Normalised(scales_[r], weight);
      }
    }
  }

  // All of it under way at once, and not behind the weights, whose copies take another way.
  __device__ __forceinline__ void Copy(const GemvParams& params, const GemvPanel& panel) {
    const auto* in = static_cast<const uint4*>(params.in) + panel.first;
    for (uint32_t r = 0; r < params.rows; ++r) {
      for (uint32_t at = threadIdx.x; at < panel.count; at += GemvShape::kThreads) {
        CopyAsync(SharedAddress(x_ + r * stride_ + at), in + size_t{r} * Vectors(params) + at, 16);
      }
    }
    WaitForAllCopies();
  }

  uint4* x_;
  uint32_t stride_;
  float* sums_;
  float* scales_;
  uint4 weight_[kHeld];
};

}  // namespace weft::kernels::cuda
