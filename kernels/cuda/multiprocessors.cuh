// The size of the GPU that a launch is for. Host code.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weft::kernels::cuda {

// Of the current device.
inline cudaError_t CountMultiprocessors(uint32_t* multiprocessors) {
  int device = 0;
  int count = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  *multiprocessors = static_cast<uint32_t>(count);
  return error;
}

}  // namespace weft::kernels::cuda
