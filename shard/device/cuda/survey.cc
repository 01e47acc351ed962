#include "shard/device/cuda/survey.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include "absl/strings/str_cat.h"
#include "shard/device/cuda/runner.h"

namespace weft::shard {
namespace {

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// `symbol` is a function of the library.
std::string FileOf(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "?";
}

std::vector<std::string> Libraries() {
  int nccl = 0;
  ncclGetVersion(&nccl);
  const size_t cublas = cublasLtGetVersion();
  return {absl::StrCat("NCCL ", nccl / 10000, ".", nccl / 100 % 100, ".", nccl % 100, " (",
                       FileOf(reinterpret_cast<const void*>(&ncclGetVersion)), ")"),
          absl::StrCat("cuBLASLt ", cublas / 10000, ".", cublas / 100 % 100, ".", cublas % 100,
                       " (", FileOf(reinterpret_cast<const void*>(&cublasLtGetVersion)), ")")};
}

SurveyedGpu SurveyGpu(uint32_t index, uint32_t count) {
  SurveyedGpu gpu;
  gpu.serves = FindCudaDevice({index, index}).status();
  const int device = static_cast<int>(index);
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) gpu.name = properties.name;
  size_t free = 0;
  size_t total = 0;
  if (cudaSetDevice(device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
    gpu.total_bytes = total;
    gpu.used_bytes = total - free;
  } else if (gpu.serves.ok()) {
    gpu.serves = absl::FailedPreconditionError(
        absl::StrCat("GPU ", index, " cannot be opened: ", cudaGetErrorString(cudaGetLastError()),
                     "; see nvidia-smi"));
  }
  for (uint32_t other = 0; other < count; ++other) {
    int reaches = 0;
    if (other != index &&
        (cudaDeviceCanAccessPeer(&reaches, device, static_cast<int>(other)) != cudaSuccess ||
         reaches == 0)) {
      gpu.out_of_reach.push_back(other);
    }
  }
  return gpu;
}

}  // namespace

GpuSurvey SurveyGpus() {
  GpuSurvey survey;
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver > 0) survey.driver_cuda = CudaVersionText(driver);
  survey.build_cuda = CudaVersionText(runtime);
  survey.libraries = Libraries();
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    survey.any = FindCudaDevice({0, 0}).status();
    return survey;
  }
  for (int index = 0; index < count; ++index) {
    survey.gpus.push_back(SurveyGpu(static_cast<uint32_t>(index), static_cast<uint32_t>(count)));
  }
  return survey;
}

}  // namespace weft::shard
