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
  __device__ __forceinline__ float Sum() const {
    return ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
  }
  __device__ __forceinline__ void Subtract(float mean) {
    low = {low.x - mean, low.y - mean, low.z - mean, low.w - mean};
    high = {high.x - mean, high.y - mean, high.z - mean, high.w - mean};
  }
  __device__ __forceinline__ float Squares() const {
    const float first = (low.x * low.x + low.y * low.y) + (low.z * low.z + low.w * low.w);
    return first + ((high.x * high.x + high.y * high.y) + (high.z * high.z + high.w * high.w));
  }
  // Times scale, times weight (plus bias), rounded once, as kernels/cuda/elementwise/norm.cu does.
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
  __device__ __forceinline__ uint4 Normalised(float scale, uint4 weight, uint4 bias) const {
    return {Biased(low.x * scale, low.y * scale, weight.x, bias.x),
            Biased(low.z * scale, low.w * scale, weight.y, bias.y),
            Biased(high.x * scale, high.y * scale, weight.z, bias.z),
            Biased(high.z * scale, high.w * scale, weight.w, bias.w)};
  }

 private:
  static __device__ __forceinline__ uint32_t Biased(float x, float y, uint32_t weight,
                                                    uint32_t bias) {
    const float2 w = UnpackBfloat16(weight);
    const float2 b = UnpackBfloat16(bias);
    return PackBfloat16(fmaf(x, w.x, b.x), fmaf(y, w.y, b.y));
  }
};

// Vectors of eight elements of k.
struct GemvPanel {
  uint32_t first;
  // Those that k has.
  uint32_t count;

  // All of k.
  __device__ __forceinline__ explicit GemvPanel(const GemvParams& params)
      : first(0), count(params.k / GemvShape::kVector) {}
  // `chunk`: vectors of a chunk.
  __device__ __forceinline__ GemvPanel(const GemvParams& params, const GemvPlan& plan,
                                       uint32_t panel, uint32_t chunk)
      : first(panel * plan.panel_chunks * chunk),
        count(min(plan.panel_chunks * chunk, params.k / GemvShape::kVector - first)) {}
};

// Takes kGroup rows at a time, of which the last group may have fewer. LayerNorm is apart from
// RMSNorm: what it needs besides would cost products with RMSNorm half a percent.
// `kHeld`: vectors of a row that a thread keeps between the sums and the output.
template <uint32_t kGroup, bool kLayerNorm, uint32_t kHeld>
class GemvInput {
 public:
  // Before the wait for earlier kernels; reads nothing that they write. `x`, in `shared`, has
  // `stride` vectors from row to row.
  __device__ __forceinline__ GemvInput(const GemvParams& params, uint4* x, uint32_t stride,
                                       char* shared)
      : x_(x),
        stride_(stride),
        sums_(reinterpret_cast<float*>(shared + GemvShape::kNormSums)),
        scales_(reinterpret_cast<float*>(shared + GemvShape::kScales)),
        means_(reinterpret_cast<float*>(shared + GemvShape::kMeans)) {
#pragma unroll
    for (uint32_t i = 0; i < kHeld; ++i) {
      const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
      weight_[i] = make_uint4(0, 0, 0, 0);
      if (params.residual_in != nullptr && vector < Vectors(params)) {
        weight_[i] = NormWeight(params, vector);
        if constexpr (kLayerNorm) bias_[i] = NormBias(params, vector);
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
      if constexpr (kLayerNorm) TakeMeans(params, row, held);
      ComputeScales(params, row, held);
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) {
        const uint32_t vector = threadIdx.x + i * GemvShape::kThreads;
        if (vector >= panel.count) break;
#pragma unroll
        for (uint32_t r = 0; r < kGroup; ++r) {
          if (row + r >= params.rows) break;
          uint4* const to = x_ + (row + r) * stride_ + vector;
          if constexpr (kLayerNorm) {
            *to = held[r][i].Normalised(scales_[row + r], weight_[i], bias_[i]);
          } else {
            *to = held[r][i].Normalised(scales_[row + r], weight_[i]);
          }
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
  // Rows of which GemvShape::kNormSums has sums of elements, and then of squares.
  static constexpr uint32_t kRowsOfSums = 4;
  static_assert(kGroup <= kRowsOfSums);

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
  static __device__ __forceinline__ uint4 NormBias(const GemvParams& params, uint32_t vector) {
    if (params.norm_bias == nullptr) return make_uint4(0, 0, 0, 0);
    return __ldg(static_cast<const uint4*>(params.norm_bias) + vector);
  }

  // A vector of the row, less the row's mean where that counts.
  __device__ __forceinline__ GemvOctet Centred(const GemvParams& params, uint32_t row,
                                               uint32_t vector) const {
    GemvOctet octet;
    octet.Load(Residual(params, row, vector));
    if constexpr (kLayerNorm) octet.Subtract(means_[row]);
    return octet;
  }

  // `sum` of what the thread holds, and `of` of its other vectors of the row one after the other:
  // the order is the same however many are held.
  template <typename Of>
  __device__ __forceinline__ float AddOthers(float sum, const GemvParams& params, uint32_t row,
                                             const Of& of) const {
    const uint32_t end = row < params.rows ? Vectors(params) : 0;
#pragma unroll 1
    for (uint32_t vector = threadIdx.x + kHeld * GemvShape::kThreads; vector < end;
         vector += GemvShape::kThreads) {
      sum += of(vector);
    }
    return sum;
  }

  // Puts a row's sum of this warp where Total finds it after a barrier.
  static __device__ __forceinline__ void PutSum(float* sums, uint32_t r, float sum) {
    sum = WarpSum(sum);
    if (threadIdx.x % kWarp == 0) sums[r * GemvShape::kWarps + threadIdx.x / kWarp] = sum;
  }
  static __device__ __forceinline__ float Total(const float* sums, uint32_t r) {
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < GemvShape::kWarps; ++i) sum += sums[r * GemvShape::kWarps + i];
    return sum;
  }

  // Takes the mean of each row from what is held of it, and keeps it for the rest; the squares are
  // summed of what is left, so that a large mean costs no digits. Each thread adds the sums of the
  // warps up for itself; what others need of it they see after the barriers of ComputeScales.
  __device__ __forceinline__ void TakeMeans(const GemvParams& params, uint32_t row,
                                            GemvOctet (&held)[kGroup][kHeld]) {
    float* const sums = sums_ + kRowsOfSums * GemvShape::kWarps;
#pragma unroll
    for (uint32_t r = 0; r < kGroup; ++r) {
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) sum += held[r][i].Sum();
      sum = AddOthers(sum, params, row + r, [&](uint32_t vector) {
        GemvOctet octet;
        octet.Load(Residual(params, row + r, vector));
        return octet.Sum();
      });
      PutSum(sums, r, sum);
    }
    GemvBarrier();
#pragma unroll
    for (uint32_t r = 0; r < kGroup; ++r) {
      if (row + r >= params.rows) break;
      const float mean = Total(sums, r) / params.k;
      // Every thread writes the same, and reads it as its own.
      means_[row + r] = mean;
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) {
        if (threadIdx.x + i * GemvShape::kThreads < Vectors(params)) held[r][i].Subtract(mean);
      }
    }
  }

  // All threads see the rows' factors afterwards.
  __device__ __forceinline__ void ComputeScales(const GemvParams& params, uint32_t row,
                                                const GemvOctet (&held)[kGroup][kHeld]) {
#pragma unroll
    for (uint32_t r = 0; r < kGroup; ++r) {
      float sum = 0;
#pragma unroll
      for (uint32_t i = 0; i < kHeld; ++i) sum += held[r][i].Squares();
      sum = AddOthers(sum, params, row + r,
                      [&](uint32_t vector) { return Centred(params, row + r, vector).Squares(); });
      PutSum(sums_, r, sum);
    }
    GemvBarrier();
    if (threadIdx.x < kGroup) {
      scales_[row + threadIdx.x] = rsqrtf(Total(sums_, threadIdx.x) / params.k + params.epsilon);
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
      [[maybe_unused]] const uint4 bias =
          kLayerNorm ? NormBias(params, vector) : make_uint4(0, 0, 0, 0);
#pragma unroll kGroup
      for (uint32_t r = 0; r < params.rows; ++r) {
        const GemvOctet octet = Centred(params, r, vector);
        if constexpr (kLayerNorm) {
          x_[r * stride_ + at] = octet.Normalised(scales_[r], weight, bias);
        } else {
          x_[r * stride_ + at] = octet.Normalised(scales_[r], weight);
        }
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
  float* means_;
  uint4 weight_[kHeld];
  uint4 bias_[kLayerNorm ? kHeld : 1];
};

}  // namespace weft::kernels::cuda
