// Two parts of all_reduce.cu: how a CTA meets the same CTA of the other ranks, and what it does to
// its part of a row. Device code only.

#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/comm/all_reduce.h"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/peer.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

// Elements of one 16-byte load, and of the chunk that a warp loads at once. What a norm needs to
// know of a row is made of what its chunks say, whichever warps had them.
inline constexpr uint32_t kRowVector = 8;
inline constexpr uint32_t kRowChunk = kWarp * kRowVector;
inline constexpr uint32_t kRowChunksMax = kAllReduceHiddenMax / kRowChunk;

// Between looks at the clock and the abort word, some 300 ns each: those looks take microseconds.
inline constexpr uint32_t kPollsPerLook = 64;

struct AllReducePlan {
  // CTAs of a row; a cluster.
  uint32_t ctas;
  // Of a row.
  uint32_t vectors;
  uint32_t chunks;
};

// A long wait for a peer.
class Patience {
 public:
  // Looks at the clock and the abort word; true when the wait is over, which is then known to all.
  __device__ __forceinline__ bool IsOver(const AllReduceParams& params) {
    const uint64_t now = Nanoseconds();
    if (begin_ == 0) begin_ = now;
    uint32_t status = kAllReduceOk;
    if (now - begin_ > params.wait_max_ns) status = kAllReduceTimedOut;
    if (params.abort != nullptr && LoadWord(params.abort) != 0) status = kAllReduceAborted;
    if (status == kAllReduceOk) return false;
    StoreWord(&params.state->stopped, status);
    if (params.status != nullptr) StoreWord(params.status, status);
    return true;
  }

 private:
  uint64_t begin_ = 0;
};

// One meeting with the other ranks; for the CTA's first warp, whose lane p deals with rank p.
class Meeting {
 public:
  // Tells the others that what ran before on this stream is complete.
  __device__ __forceinline__ void Arrive(const AllReduceParams& params) {
    uint32_t* const calls = &params.state->calls[blockIdx.x];
    const uint32_t peer = threadIdx.x;
    going_ = LoadWord(&params.state->stopped) == kAllReduceOk;
    call_ = LoadWord(calls) + 1;
    // All lanes have loaded before lane 0 stores.
    __syncwarp();
    waits_ = going_ && peer < params.world && peer != params.rank;
    if (waits_) StoreRelease(Flag(params.flags[peer], params.rank), call_);
    // After the flags: a release waits for the thread's own stores. The next launch reads it.
    if (peer == 0) *calls = call_;
  }

  // Until the other ranks have arrived. False when this rank no longer waits for them.
  __device__ __forceinline__ bool Await(const AllReduceParams& params) const {
    return waits_ ? AwaitPeer(params) : going_;
  }

 private:
  __device__ __forceinline__ static uint32_t* Flag(uint32_t* flags, uint32_t from) {
    return flags + blockIdx.x * kAllReduceRanksMax + from;
  }

  // A peer can be one call ahead, never two: it needs this rank's arrival to pass.
  __device__ __forceinline__ bool AwaitPeer(const AllReduceParams& params) const {
    const uint32_t* const flag = Flag(params.flags[params.rank], threadIdx.x);
    Patience patience;
    for (uint32_t polls = 1; static_cast<int32_t>(LoadAcquire(flag) - call_) < 0; ++polls) {
      if (polls % kPollsPerLook == 0 && patience.IsOver(params)) return false;
    }
    return true;
  }

  bool going_;
  bool waits_;
  uint32_t call_;
};

__device__ __forceinline__ void Widen(uint4 bits, float (&out)[kRowVector]) {
  const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pairs[i]));
    out[2 * i] = pair.x;
    out[2 * i + 1] = pair.y;
  }
}

// What the chunks of a row say, for its norm.
struct RowSums {
  // RMSNorm: of the squares; LayerNorm: of the squares of what lies beyond the chunk's own mean, so
  // that a large mean costs no digits.
  float squares[kRowChunksMax];
  // LayerNorm alone: of the elements.
  float elements[kRowChunksMax];
};

// What one thread has of a row: vector v lies in chunk ChunkOf(v).
template <int kWorldMax, int kVectors, bool kLayerNorm>
class RowPart {
 public:
  __device__ __forceinline__ RowPart(const AllReduceParams& params, const AllReducePlan& plan,
                                     uint32_t cta)
      : params_(params), plan_(plan), cta_(cta) {}

  __device__ __forceinline__ void LoadWeight() {
    if (params_.weight == nullptr) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!Has(v)) continue;
      weight_[v] = __ldg(static_cast<const uint4*>(params_.weight) + VectorOf(v));
      if constexpr (kLayerNorm) {
        bias_[v] = params_.bias != nullptr
                       ? __ldg(static_cast<const uint4*>(params_.bias) + VectorOf(v))
                       : make_uint4(0, 0, 0, 0);
      }
    }
  }

  // Past the L1: in a launch that overlapped the one before it, the L1 may hold older lines.
  __device__ __forceinline__ void LoadResidual(uint32_t row) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!Has(v)) continue;
      const auto* const from = reinterpret_cast<const float4*>(params_.residual + At(row, v));
      const float4 low = __ldcg(from);
      const float4 high = __ldcg(from + 1);
      const float values[kRowVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < kRowVector; ++i) row_[v][i] = values[i];
    }
  }

  // residual += the ranks' sums, in rank order. All loads of a batch are in flight together.
  __device__ __forceinline__ void AddPartials(uint32_t row) {
    constexpr int kBatch = kVectors * kWorldMax <= 8 ? kVectors : 8 / kWorldMax;
#pragma unroll
    for (int first = 0; first < kVectors; first += kBatch) {
      uint4 bits[kBatch][kWorldMax];
#pragma unroll
      for (int v = 0; v < kBatch; ++v) {
        const size_t at = At(row, first + v);
#pragma unroll
        for (int p = 0; p < kWorldMax; ++p) {
          if (p >= params_.world || !Has(first + v)) continue;
          bits[v][p] = LoadFromPeer(static_cast<const __nv_bfloat16*>(params_.partial[p]) + at);
        }
      }
#pragma unroll
      for (int v = 0; v < kBatch; ++v) {
        if (Has(first + v)) Add(bits[v], row_[first + v]);
      }
    }
  }

  // The same of one vector, whose bits are there.
  __device__ __forceinline__ void AddReceived(const uint4 (&bits)[kWorldMax]) {
    static_assert(kVectors == 1);
    if (Has(0)) Add(bits, row_[0]);
  }

  __device__ __forceinline__ void StoreResidual(uint32_t row) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (Has(v)) Write<float>(params_.residual + At(row, v), row_[v]);
    }
  }

  // Each chunk's sums into `sums` of all the row's CTAs.
  __device__ __forceinline__ void ShareSums(RowSums* sums) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float mean = 0;
      if constexpr (kLayerNorm) {
        float sum = 0;
        if (Has(v)) {
#pragma unroll
          for (int i = 0; i < kRowVector; ++i) sum += row_[v][i];
        }
        sum = WarpSum(sum);
        Share(sums->elements, ChunkOf(v), sum);
        mean = sum / SizeOf(ChunkOf(v));
      }
      float sum = 0;
      if (Has(v)) {
        // Fused by hand: the same bits from every instance of this template.
#pragma unroll
        for (int i = 0; i < kRowVector; ++i) {
          const float x = kLayerNorm ? row_[v][i] - mean : row_[v][i];
          sum = __fmaf_rn(x, x, sum);
        }
      }
      Share(sums->squares, ChunkOf(v), WarpSum(sum));
    }
  }

  // `sums`: of all chunks of the row.
  __device__ __forceinline__ void StoreNormed(uint32_t row, const RowSums& sums) const {
    const uint32_t lane = threadIdx.x % kWarp;
    float mean = 0;
    if constexpr (kLayerNorm) {
      const float low = lane < plan_.chunks ? sums.elements[lane] : 0.0f;
      const float high = lane + kWarp < plan_.chunks ? sums.elements[lane + kWarp] : 0.0f;
      mean = WarpSum(low + high) / params_.hidden;
    }
    const float squares =
        WarpSum(SquaresOf(sums, lane, mean) + SquaresOf(sums, lane + kWarp, mean));
    const float scale = rsqrtf(squares / params_.hidden + params_.epsilon);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!Has(v)) continue;
      float out[kRowVector];
      Widen(weight_[v], out);
      if constexpr (kLayerNorm) {
        float bias[kRowVector];
        Widen(bias_[v], bias);
#pragma unroll
        for (int i = 0; i < kRowVector; ++i) {
          out[i] = fmaf((row_[v][i] - mean) * scale, out[i], bias[i]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kRowVector; ++i) out[i] = row_[v][i] * scale * out[i];
      }
      Write(static_cast<__nv_bfloat16*>(params_.out) + At(row, v), out);
    }
  }

  // Of a vector of the row: whether there is one, and which.
  __device__ __forceinline__ bool Has(int v) const { return VectorOf(v) < plan_.vectors; }
  __device__ __forceinline__ uint32_t VectorOf(int v) const {
    return ChunkOf(v) * kWarp + threadIdx.x % kWarp;
  }

 private:
  __device__ __forceinline__ uint32_t ChunkOf(int v) const {
    return (v * plan_.ctas + cta_) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  }
  // Elements of a chunk that there is; the last may be shorter.
  __device__ __forceinline__ float SizeOf(uint32_t chunk) const {
    const uint32_t begin = min(chunk * kRowChunk, params_.hidden);
    return static_cast<float>(min(kRowChunk, params_.hidden - begin));
  }
  // What a chunk adds to the sum of squares of the row, less `mean`.
  __device__ __forceinline__ float SquaresOf(const RowSums& sums, uint32_t chunk,
                                             float mean) const {
    if (chunk >= plan_.chunks) return 0.0f;
    if constexpr (!kLayerNorm) return sums.squares[chunk];
    const float size = SizeOf(chunk);
    const float beyond = sums.elements[chunk] / size - mean;
    return sums.squares[chunk] + size * beyond * beyond;
  }
  // A chunk's sum, by its warp, into `sums` of all the row's CTAs.
  __device__ __forceinline__ void Share(float* sums, uint32_t chunk, float sum) const {
    const uint32_t lane = threadIdx.x % kWarp;
    if (chunk >= plan_.chunks || lane >= plan_.ctas) return;
    if (plan_.ctas == 1) {
      sums[chunk] = sum;
    } else {
      StoreToCluster(static_cast<uint32_t>(__cvta_generic_to_shared(sums + chunk)), lane, sum);
    }
  }
  __device__ __forceinline__ size_t At(uint32_t row, int v) const {
    return size_t{row} * params_.hidden + VectorOf(v) * kRowVector;
  }

  __device__ __forceinline__ void Add(const uint4 (&bits)[kWorldMax],
                                      float (&row)[kRowVector]) const {
    float sum[kRowVector];
    Widen(bits[0], sum);
#pragma unroll
    for (int p = 1; p < kWorldMax; ++p) {
      if (p >= params_.world) continue;
      float next[kRowVector];
      Widen(bits[p], next);
#pragma unroll
      for (int i = 0; i < kRowVector; ++i) sum[i] += next[i];
    }
#pragma unroll
    for (int i = 0; i < kRowVector; ++i) row[i] += sum[i];
  }

  const AllReduceParams& params_;
  const AllReducePlan& plan_;
  const uint32_t cta_;
  float row_[kVectors][kRowVector];
  uint4 weight_[kVectors];
  uint4 bias_[kLayerNorm ? kVectors : 1];
};

}  // namespace weft::kernels::cuda
