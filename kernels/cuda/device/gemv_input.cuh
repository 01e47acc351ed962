// Gemv's input in shared memory: a panel of it as bf16, copied, or normalised from the residual.
// Device code only.

#pragma once

#include "kernels/cuda/device/gemv_work.cuh"
#include "kernels/cuda/device/vector.cuh"

namespace weft::kernels::cuda {

// Vectors of eight elements of k.
struct GemvPanel {
  // The first in k; how many there are here; from row to row.
  uint32_t first;
  uint32_t count;
  uint32_t stride;

  __device__ __forceinline__ GemvPanel(const GemvPlan& plan, uint32_t panel)
      : first(panel * plan.panel_steps * kWarp),
        count(min(plan.panel_steps, plan.steps - panel * plan.panel_steps) * kWarp),
        stride(plan.panel_steps * kWarp) {}
};

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
  // Times scale, times weight, rounded once, as kernels/cuda/norm.cu does.
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

template <int kRows>
class GemvInput {
 public:
  // Before the wait for earlier kernels; reads nothing that they write. `sums` and `scales` are in
  // shared memory, kGemvRowsMax floats a warp and once.
  __device__ __forceinline__ GemvInput(const GemvParams& params, uint4* x, float* sums,
                                       float* scales)
      : x_(x), sums_(sums), scales_(scales) {
    if (params.residual_in == nullptr) return;
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      weight_[i] = vector < Vectors(params) ? NormWeight(params, vector) : make_uint4(0, 0, 0, 0);
    }
  }

  // The first panel; the whole block, which needs a barrier after it.
  __device__ __forceinline__ void FillFirst(const GemvParams& params, const GemvPanel& panel) {
    if (params.residual_in == nullptr) return Copy(params, panel);
    GemvOctet held[kRows][kHeld] = {};
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      if (vector >= Vectors(params)) break;
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) held[r][i].Load(Residual(params, r, vector));
    }
    ComputeScales(params, held);
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      if (vector >= panel.count) break;
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        x_[r * panel.stride + vector] = held[r][i].Normalised(scales_[r], weight_[i]);
      }
    }
    Normalise(params, panel, kHeld * GemvShape::kThreads);
  }

  // Any panel, after FillFirst; the block needs a barrier before and after it.
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
  // Of `in`: loads under way in a thread.
  static constexpr uint32_t kBatch = kRows == 3 ? 2 : 8 / kRows;

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

  // All threads see all scales afterwards.
  __device__ __forceinline__ void ComputeScales(const GemvParams& params,
                                                const GemvOctet (&held)[kRows][kHeld]) {
    const uint32_t warp = threadIdx.x / kWarp;
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) sum += held[r][i].Squares();
      for (uint32_t vector = threadIdx.x + kHeld * GemvShape::kThreads; vector < Vectors(params);
           vector += GemvShape::kThreads) {
        GemvOctet octet;
        octet.Load(Residual(params, r, vector));
        sum += octet.Squares();
      }
      sum = WarpSum(sum);
      if (lane == 0) sums_[r * GemvShape::kWarps + warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kRows) {
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < GemvShape::kWarps; ++i) {
        sum += sums_[threadIdx.x * GemvShape::kWarps + i];
      }
      scales_[threadIdx.x] = rsqrtf(sum / params.k + params.epsilon);
    }
    __syncthreads();
  }

  // The panel from its vector `begin` on.
  __device__ __forceinline__ void Normalise(const GemvParams& params, const GemvPanel& panel,
                                            uint32_t begin) {
    for (uint32_t at = begin + threadIdx.x; at < panel.count; at += GemvShape::kThreads) {
      const uint32_t vector = panel.first + at;
      const bool inside = vector < Vectors(params);
      GemvOctet octets[kRows] = {};
      uint4 weight = {0, 0, 0, 0};
      if (inside) {
        weight = NormWeight(params, vector);
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) octets[r].Load(Residual(params, r, vector));
      }
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        x_[r * panel.stride + at] = octets[r].Normalised(scales_[r], weight);
      }
    }
  }

  __device__ __forceinline__ void Copy(const GemvParams& params, const GemvPanel& panel) {
    const auto* in = static_cast<const uint4*>(params.in) + panel.first;
    const uint32_t inside = min(panel.count, Vectors(params) - panel.first);
    for (uint32_t begin = threadIdx.x; begin < panel.count; begin += kBatch * GemvShape::kThreads) {
      uint4 held[kRows][kBatch];
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
        const uint32_t at = begin + i * GemvShape::kThreads;
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
          held[r][i] = make_uint4(0, 0, 0, 0);
          if (at < inside) held[r][i] = LoadWritten(in + size_t{r} * Vectors(params) + at);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
        const uint32_t at = begin + i * GemvShape::kThreads;
        if (at >= panel.count) break;
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) x_[r * panel.stride + at] = held[r][i];
      }
    }
  }

  uint4* x_;
  float* sums_;
  float* scales_;
  uint4 weight_[kHeld];
};

}  // namespace weft::kernels::cuda
