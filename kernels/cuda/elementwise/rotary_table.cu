#include "kernels/cuda/elementwise/rotary_table.h"

#include <cuda_runtime.h>

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kBlocksMax = 4096;

__global__ void __launch_bounds__(kThreads)
    FillTable(const __grid_constant__ RotaryTableParams params) {
  const uint64_t end = uint64_t{params.positions} * params.pairs;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < end;
       i += uint64_t{gridDim.x} * kThreads) {
    const auto position = static_cast<float>(i / params.pairs);
    const float angle = __fmul_rn(position, params.inverse_frequencies[i % params.pairs]);
    double sine;
    double cosine;
    sincos(static_cast<double>(angle), &sine, &cosine);
    params.out[i] = make_float2(__fmul_rn(params.factor, static_cast<float>(cosine)),
                                __fmul_rn(params.factor, static_cast<float>(sine)));
  }
}

}  // namespace

cudaError_t FillRotaryTable(const RotaryTableParams& params, cudaStream_t stream) {
  if (params.pairs == 0 || params.pairs > kRotaryPairsMax) return cudaErrorInvalidValue;
  if (params.positions == 0) return cudaSuccess;
  const uint64_t elements = uint64_t{params.positions} * params.pairs;
  const uint64_t blocks = (elements + kThreads - 1) / kThreads;
  FillTable<<<static_cast<uint32_t>(blocks < kBlocksMax ? blocks : kBlocksMax), kThreads, 0,
              stream>>>(params);
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda
