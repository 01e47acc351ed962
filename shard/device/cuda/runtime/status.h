// An error of CUDA's runtime as absl::Status: INTERNAL with the call and the runtime's own words;
// RESOURCE_EXHAUSTED for memory. An error of the device ends the epoch, and the shard with it.

#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::shard {

// `what` names the call, as "copy of step inputs".
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace weft::shard
