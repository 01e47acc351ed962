// Gemv's output: what becomes of the sums of a pair of tiles, an element a thread. For the warps
// that multiply. Device code only.

#pragma once

#include "kernels/cuda/elementwise/activate.cuh"
#include "kernels/cuda/elementwise/rotate.cuh"
#include "kernels/cuda/gemm/gemv_work.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {

__device__ __forceinline__ float RoundToBfloat16(float x) {
  return ToFloat(FromFloat<__nv_bfloat16>(x));
}

// The thread's element of a pair of tiles of `out`: half of the threads to a tile, sixteen
// neighbours to a row of `out`.
struct GemvElement {
  static __device__ __forceinline__ uint32_t Tile() { return threadIdx.x / GemvShape::kTileSums; }
  static __device__ __forceinline__ uint32_t Row() {
    return threadIdx.x % GemvShape::kTileSums / GemvShape::kTileRows;
  }
  static __device__ __forceinline__ uint32_t Column() { return threadIdx.x % GemvShape::kTileRows; }

  // Its sum over the warps of `sums`, a tile's, each warp's as its lanes have them: lane 4 i + j
  // has of the tile's rows i and i + 8 those of the input's rows 2 j and 2 j + 1.
  static __device__ __forceinline__ float Sum(const float* sums) { return OverWarps(sums + At()); }
  // That of the weight's row eight further.
  static __device__ __forceinline__ float PartnerSum(const float* sums) {
    return OverWarps(sums + At() + 2);
  }

 private:
  static __device__ __forceinline__ uint32_t At() {
    return Column() % 8 * 16 + Row() / 2 * 4 + Column() / 8 * 2 + Row() % 2;
  }
  static __device__ __forceinline__ float OverWarps(const float* sums) {
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < GemvShape::kWarps; ++i) sum += sums[i * GemvShape::kTileSums];
    return sum;
  }
};
static_assert(GemvShape::kTiles * GemvShape::kTileSums == GemvShape::kThreads);

// With kRotateAppend: where the thread's row goes, looked up once a launch.
class GemvHeads {
 public:
  // Before the wait for earlier kernels; reads nothing that they write.
  __device__ __forceinline__ explicit GemvHeads(const GemvParams& params) {
    const uint32_t row = GemvElement::Row();
    if (params.epilogue != GemvEpilogue::kRotateAppend || row >= params.rows) return;
    const uint32_t position = __ldcg(params.heads.positions + row);
    cache_ = FindCacheRow(params.heads, row, position);
    if (params.heads.rotary != nullptr) {
      turns_ = params.heads.rotary + size_t{position} * (params.heads.kv.head_dim / 2);
    }
  }

  // What pair `column` is rotated by, if it is.
  __device__ __forceinline__ float2 Turn(const GemvParams& params, uint32_t column) const {
    const uint32_t half = params.heads.kv.head_dim / 2;
    return Turns(params, column / half) ? turns_[column % half] : float2{};
  }

  // `low`, `high`: the products of pair `column`.
  __device__ __forceinline__ void Write(const GemvParams& params, uint32_t column, float2 turn,
                                        float low, float high) const {
    const RotateAndAppendParams& heads = params.heads;
    const uint32_t half = heads.kv.head_dim / 2;
    const uint32_t head = column / half;
    const uint32_t in_row = head * heads.kv.head_dim + column % half;
    low = RoundToBfloat16(low);
    high = RoundToBfloat16(high);
    if (heads.bias != nullptr) {
      const auto* bias = static_cast<const __nv_bfloat16*>(heads.bias) + in_row;
      low += ToFloat(bias[0]);
      high += ToFloat(bias[half]);
    }
    if (Turns(params, head)) RotatePair(turn, &low, &high);
    __nv_bfloat16* to;
    if (head < heads.query_heads) {
      to = static_cast<__nv_bfloat16*>(heads.query) +
           size_t{GemvElement::Row()} * heads.query_stride + in_row;
    } else {
      if (!cache_.present) return;
      to = CacheHead<__nv_bfloat16>(heads.kv, cache_, head - heads.query_heads) + column % half;
    }
    to[0] = FromFloat<__nv_bfloat16>(low);
    to[half] = FromFloat<__nv_bfloat16>(high);
  }

 private:
  // Value heads come last.
  __device__ __forceinline__ bool Turns(const GemvParams& params, uint32_t head) const {
    return turns_ != nullptr && head < params.heads.query_heads + params.heads.kv.kv_heads;
  }

  CacheRow cache_;
  const float2* turns_ = nullptr;
};

class GemvOut {
 public:
  // After the wait for earlier kernels. What `out` holds, or what turns the pair, is under way
  // while the sums are made.
  __device__ __forceinline__ GemvOut(const GemvParams& params, const GemvPlan& plan,
                                     const GemvRange& pair, const GemvHeads& heads)
      : heads_(heads) {
    const uint32_t width = plan.pairs.Width();
    column_ = pair.begin + GemvElement::Tile() * width + GemvElement::Column();
    present_ =
        GemvElement::Row() < params.rows && GemvElement::Column() < width && column_ < pair.end;
    if (!present_) return;
    if (params.bias != nullptr) {
      before_.y = ToFloat(static_cast<const __nv_bfloat16*>(params.bias)[column_]);
    }
    if (params.epilogue == GemvEpilogue::kAccumulate) {
      before_.x = LoadWritten(static_cast<const float*>(params.out) + At(params));
    } else if (params.epilogue == GemvEpilogue::kRotateAppend) {
      before_ = heads.Turn(params, column_);
    }
  }

  // `sums`: of all warps, tile by tile, each as the lanes of a warp have them.
  __device__ __forceinline__ void Write(const GemvParams& params, const float* sums) const {
    if (!present_) return;
    const float* of_tile = sums + GemvElement::Tile() * GemvShape::kWarps * GemvShape::kTileSums;
    const float value = GemvElement::Sum(of_tile);
    switch (params.epilogue) {
      case GemvEpilogue::kStore:
        return Store(params, value + before_.y);
      case GemvEpilogue::kAccumulate:
        return Store(params, value + before_.y + before_.x);
      case GemvEpilogue::kActivated:
        return Store(params, Activate(params.activation, RoundToBfloat16(value + before_.y)));
      case GemvEpilogue::kGated:
        return Store(params, Activate(params.activation, RoundToBfloat16(value)) *
                                 RoundToBfloat16(GemvElement::PartnerSum(of_tile)));
      case GemvEpilogue::kRotateAppend:
        return heads_.Write(params, column_, before_, value, GemvElement::PartnerSum(of_tile));
    }
  }

 private:
  __device__ __forceinline__ size_t At(const GemvParams& params) const {
    return size_t{GemvElement::Row()} * params.out_stride + column_;
  }
  __device__ __forceinline__ void Store(const GemvParams& params, float value) const {
    if (params.out_type == DType::kFloat32) {
      static_cast<float*>(params.out)[At(params)] = value;
    } else {
      static_cast<__nv_bfloat16*>(params.out)[At(params)] = FromFloat<__nv_bfloat16>(value);
    }
  }

  const GemvHeads& heads_;
  uint32_t column_;
  // The sum that was there and the bias, or what turns the pair.
  float2 before_ = {0, 0};
  bool present_;
};

}  // namespace weft::kernels::cuda
