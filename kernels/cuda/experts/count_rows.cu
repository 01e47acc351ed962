#include <cuda_runtime.h>

#include "kernels/cuda/experts/count_rows.h"
#include "kernels/cuda/kv.h"
#include "kernels/cuda/ptx/dependent.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) Count(const CountExpertRowsParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  if (__ldcg(params.counting) == 0) return;
  const uint32_t place = blockIdx.x * kThreads + threadIdx.x;
  if (place >= params.places) return;
  const uint32_t row = __ldcg(params.row_of_place + place);
  if (params.row_sequences != nullptr && __ldcg(params.row_sequences + row) == kNoSequence) return;
  // Places are sorted by expert: the lanes of a warp add to few numbers, each with one access.
  auto* counts = reinterpret_cast<unsigned long long*>(params.counts);
  atomicAdd(counts + __ldcg(params.expert_of_place + place), 1ull);
}

}  // namespace

cudaError_t CountExpertRows(const CountExpertRowsParams& params, cudaStream_t stream) {
  if (params.places == 0) return cudaSuccess;
  const dim3 grid((params.places + kThreads - 1) / kThreads);
  return LaunchKernel(Count, grid, kThreads, 0, params.dependent, stream, params);
}

}  // namespace weft::kernels::cuda
