// Launches that overlap the end of the kernel in front (programmatic stream serialization), and
// what the kernels say for it. Every CTA waits before it touches what an earlier kernel writes or
// reads before it writes that, work or not: only then does the end of a kernel mean the end of all
// in front of it.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace weft::kernels::cuda {

// Until all kernels in front are complete and what they wrote is visible (past the L1). Nothing to
// wait for when the launch was not a dependent one.
__device__ __forceinline__ void WaitForEarlierKernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next kernel, if it is a dependent launch, may start when all CTAs have said so.
__device__ __forceinline__ void AllowNextKernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// `kernel(arguments...)`, dependent or not.
template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), dim3 grid, uint32_t threads,
                         size_t shared_bytes, bool dependent, cudaStream_t stream,
                         const Arguments&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  // Also an earlier launch's, and clears it.
  const cudaError_t last = cudaGetLastError();
  return error != cudaSuccess ? error : last;
}

}  // namespace weft::kernels::cuda
