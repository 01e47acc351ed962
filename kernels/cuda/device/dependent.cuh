// Launches that overlap: a kernel may start before the one in front of it in the stream has ended
// (programmatic stream serialization), does what does not depend on it, and waits. For host and
// device code.
//
// What makes a chain of them right: every block of such a kernel waits before it touches anything
// that an earlier kernel writes or reads, and before it ends, so that whoever waits for it knows
// that everything earlier is complete too.

#pragma once

#include <cuda_runtime.h>

namespace weft::kernels::cuda {

// Until the launch before this one has ended and its writes are seen; nothing to wait for when this
// launch was not allowed to overlap it.
__device__ __forceinline__ void AwaitEarlierLaunch() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next launch, if it may overlap, may start when all blocks have said so or ended. Says nothing
// about what this one has written.
__device__ __forceinline__ void AllowNextLaunch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

template <typename... Params, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                         cudaStream_t stream, bool dependent, Arguments&&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(arguments)...);
}

}  // namespace weft::kernels::cuda
