// Products of a step's rows with the matrices of the experts that they take (route.h):
//
//   out[p, j] = sum over i of in[p, i] * weight[expert of p][j, i] + bias[expert of p][j]
//
// p is a place; weight [experts, n, k], sums in float32. Each matrix is read once for up to
// tile_rows places of its expert. Two ways:
//
//   ExpertGemm: bf16 on tensor cores, as SmallGemm (gemm/small_gemm.h) for each tile of places: the
//     launch has blocks for as many tiles as there may be, and those behind the last leave at once,
//     so that a captured launch serves whatever the router chose. k and the rows of a matrix
//     multiples of 64. How k is split over a cluster depends on n, k and per_token alone: a row's
//     result depends neither on the other rows nor on their number.
//   ExpertProduct: any type and size, a warp for each number; for what ExpertGemm does not serve.
//
// All pointers 16-byte aligned, everything contiguous; k a multiple of 8.

#pragma once

#include <cuda.h>

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

enum class ExpertEpilogue : uint8_t {
  kStore,
  // Matrices hold n / 2 gate rows, then as many up rows (n a multiple of 128): out [places, n / 2]
  // = silu(g) * u, with g and u rounded to bf16 first. No bias. ExpertGemm only.
  kGatedSilu,
};

struct ExpertProductParams {
  // [experts, n, k], for ExpertProduct.
  const void* weight = nullptr;
  // Of [experts, n, k], by MakeExpertMap, for ExpertGemm.
  CUtensorMap map = {};
  // [experts, n]; or null. ExpertProduct only.
  const void* bias = nullptr;
  // [places, k] and [places, n] or [places, n / 2].
  const void* in = nullptr;
  void* out = nullptr;
  uint32_t places = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  uint32_t per_token = 0;
  // 8, 16, 32 or 64, as the tiles were made.
  uint32_t tile_rows = 8;
  // The most tiles that there may be (ExpertTilesMax).
  uint32_t tiles_max = 0;
  const ExpertTile* tiles = nullptr;
  const uint32_t* tile_count = nullptr;
  const uint32_t* expert_of_place = nullptr;
  // ExpertGemm of up to tile_rows rows: `in` is [in_rows, k], and this says the row of each place.
  const uint32_t* row_of_place = nullptr;
  uint32_t in_rows = 0;
  ExpertEpilogue epilogue = ExpertEpilogue::kStore;
  // Of everything but sums.
  DType type = DType::kBfloat16;
  bool dependent = false;
};

bool ServesExpertGemm(uint32_t n, uint32_t k, DType type);
// Rows of a tile for so many rows of a step.
uint32_t ExpertTileRows(uint32_t rows, uint32_t experts, uint32_t per_token);

// Once for each stack, when it is loaded; as MakeSmallGemmMap.
cudaError_t MakeExpertMap(const void* weight, uint32_t experts, uint32_t n, uint32_t k,
                          CUtensorMap* map);

cudaError_t ExpertGemm(const ExpertProductParams& params, cudaStream_t stream);
cudaError_t ExpertProduct(const ExpertProductParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
