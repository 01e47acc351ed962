#include <cuda_runtime_api.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cuda/runner.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

// What the kernels are compiled for (CMakeLists.txt).
constexpr int kMajor = 9;
constexpr int kMinor = 0;

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::StatusOr<CudaDevice> FindCudaDevice(const GpuChoice& choice) {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return absl::NotFoundError("no NVIDIA driver on this host: install 580 or newer");
  }
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the driver serves CUDA ", VersionText(driver), ", this build needs ",
                     VersionText(runtime), ": install 580 or newer"));
  }
  if (counted != cudaSuccess || count == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("this process sees no GPU (", cudaGetErrorString(counted),
                     "): see nvidia-smi and CUDA_VISIBLE_DEVICES"));
  }
  WEFT_ASSIGN_OR_RETURN(const uint32_t index, LocalGpu(choice, static_cast<uint32_t>(count)));
  cudaDeviceProp properties;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, static_cast<int>(index)),
                                  absl::StrCat("properties of GPU ", index)));
  if (properties.major != kMajor || properties.minor != kMinor) {
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU ", index, " (", properties.name, ") has compute capability ", properties.major, ".",
        properties.minor, ", these kernels run on ", kMajor, ".", kMinor, " (H100, H200)"));
  }
  return CudaDevice{static_cast<int>(index), properties.name, properties.totalGlobalMem};
}

bool LeavesGpuUnused(const absl::Status& no_gpu) { return !absl::IsNotFound(no_gpu); }

void PrepareCudaEnvironment() {
  // NVLink multicast can put the GPUs of a shared host out of service.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
  // A kernel that is loaded when it is first launched waits for the device, where a kernel may be
  // waiting for one that another rank has still to launch.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

}  // namespace weft::shard
