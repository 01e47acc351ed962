// A build without CUDA.

#include "shard/device/cuda/tuning.h"

namespace weft::shard {

absl::Status TuneCudaProducts(const ModelFiles&, const CudaTuneOptions&, absl::string_view,
                              absl::FunctionRef<void(const CudaTuneLine&)>,
                              absl::FunctionRef<absl::Status(const std::string&)>) {
  return absl::UnimplementedError(
      "this build has no CUDA backend: build with CUDA 13 (deploy/setup.sh --cuda)");
}

}  // namespace weft::shard
