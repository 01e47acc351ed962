// The driver's function that describes a matrix to the copy engine, asked for at run time: weft
// links no libcuda, which machines without a GPU lack. Host code, any thread.

#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace weft::kernels::cuda {

using TensorMapEncoder = PFN_cuTensorMapEncodeTiled_v12000;

// cudaErrorNotSupported where the driver has none.
inline cudaError_t FindTensorMapEncoder(TensorMapEncoder* encode) {
  constexpr unsigned kSinceVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, kSinceVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess) return error;
  if (result != cudaDriverEntryPointSuccess || found == nullptr) return cudaErrorNotSupported;
  *encode = reinterpret_cast<TensorMapEncoder>(found);
  return cudaSuccess;
}

}  // namespace weft::kernels::cuda
