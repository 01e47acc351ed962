#include "kernels/cuda/sampling/rank_targets.h"

#include <cuda_runtime.h>

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 512;

__global__ void __launch_bounds__(kThreads) RankTarget(const RankTargetsParams params) {
  const uint32_t r = blockIdx.x;
  const float* const row = params.logits + r * params.row_stride;
  const uint32_t target = params.targets[r];
  const float score = row[target];
  uint32_t before = 0;
  for (uint32_t id = threadIdx.x; id < params.vocabulary; id += kThreads) {
    const float x = row[id];
    before += x > score || (x == score && id < target) ? 1 : 0;
  }
  __shared__ uint32_t sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, before);
  __syncthreads();
  if (threadIdx.x == 0) params.out_ranks[r] = sum + 1;
}

}  // namespace

cudaError_t RankTargets(const RankTargetsParams& params, cudaStream_t stream) {
  RankTarget<<<params.rows, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda
