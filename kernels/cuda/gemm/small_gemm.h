// Product with few rows, as in a decode step:
//
//   out[r, j] = sum over i of in[r, i] * weight[j, i]        in [rows, k], weight [n, k], bf16
//
// on tensor cores with the weights as the left operand and the rows, padded to 8, 16, 24, 32, 48 or
// 64, as the right one; sums in float32. Reads the weights once (from memory) and `in` once for
// every 128 outputs (from L2; for every 64 where n is below 1,800; for twice as many with 33 rows
// or more). A cluster of up to eight CTAs may share a tile of outputs, each with a part of k; the
// parts are added in order through shared memory.
//
// The same inputs give the same bits. How k is split depends on n and k alone: a row's result does
// not depend on the other rows, nor on how many there are of one padded size. (Between padded sizes
// it is as equal as the hardware's sums over 16 of k are; the test compares bits.)
//
// Limits: 1 to 64 rows, k a multiple of 64, n of 8 (else cudaErrorInvalidValue); pointers 16-byte
// aligned, everything contiguous but for the rows of out. Needs no workspace.

#pragma once

#include <cuda.h>

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kSmallGemmRowsMax = 64;

enum class SmallGemmEpilogue : uint8_t {
  // out = y in out_type.
  kStore,
  // out += y; float32 out.
  kAccumulate,
  // weight holds n / 2 gate rows, then as many up rows (n a multiple of 16): out [rows, n / 2] =
  // silu(g) * u, bf16, with g and u rounded to bf16 first.
  kGatedSilu,
};

struct SmallGemmParams {
  // Of [n, k], by MakeSmallGemmMap.
  CUtensorMap weight = {};
  const void* in = nullptr;
  void* out = nullptr;
  uint32_t rows = 0;
  uint32_t n = 0;
  uint32_t k = 0;
  // Elements from a row of out to the next; a multiple of 8.
  uint32_t out_stride = 0;
  DType out_type = DType::kBfloat16;
  SmallGemmEpilogue epilogue = SmallGemmEpilogue::kStore;
  // The launch may begin before the one in front of it in the stream has ended: weights are loaded
  // ahead, in and out touched only after it. Where the next launch may do the same, it may begin
  // once all CTAs of this one run.
  bool dependent = false;
  // For measurements: parts of k (1 to 8; 0: by n and k), and tiles of outputs that share the loads
  // of `in` (1, or 2 with 25 rows or more; 0: by rows). Their product is at most 8.
  uint8_t splits = 0;
  uint8_t sharers = 0;
};

// Describes a weight matrix to the copy engine: once, when it is loaded. No device work; the map
// stays valid as long as `weight` does.
cudaError_t MakeSmallGemmMap(const void* weight, uint32_t n, uint32_t k, CUtensorMap* map);

cudaError_t SmallGemm(const SmallGemmParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
