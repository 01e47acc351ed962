// The warps of Gemv that multiply: a chunk of weights of the ring by the input that lies in shared
// memory. Device code only.

#pragma once

#include "kernels/cuda/gemm/gemv_stream.cuh"
#include "kernels/cuda/gemm/gemv_work.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace weft::kernels::cuda {

// A warp's sums of a tile, over its slices of the chunks: two chains, to be added.
struct GemvSums {
  float even[4] = {};
  float odd[4] = {};
};

// A warp that multiplies.
template <uint32_t kElements>
class GemvMultiplier {
 public:
  // `shared`: where the block's shared memory begins.
  __device__ __forceinline__ GemvMultiplier(uint32_t shared, uint32_t slots,
                                            uint32_t first_barrier = 0)
      : slot_{shared, slots, first_barrier} {
    const uint32_t lane = threadIdx.x % kWarp;
    element_ = threadIdx.x / kWarp * Chunk::kSliceElements + lane % 4 * GemvShape::kVector;
    weights_ = lane / 4 * Chunk::kRowBytes + element_ * 2;
  }

  // The row of the input, in shared memory, that becomes row `lane / 4` of the sums; null: zeros.
  __device__ __forceinline__ void ReadRow(const uint4* x) {
    x_ = x != nullptr ? SharedAddress(x) + element_ * 2 : slot_.shared + GemvShape::kZeros;
    x_chunk_ = x != nullptr ? Chunk::kBytes : 0;
    x_step_ = x != nullptr ? GemvShape::kStep * 2 : 0;
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

}  // namespace weft::kernels::cuda
