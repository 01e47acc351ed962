#include "shard/device/cuda/runtime/status.h"

#include "absl/strings/str_cat.h"

namespace weft::shard {

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The runtime would report it again after the next launch, which did not cause it. An error that
  // the device does not survive stays all the same.
  (void)cudaGetLastError();
  const std::string message = absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error), " (",
                                           cudaGetErrorName(error), ")");
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

}  // namespace weft::shard
