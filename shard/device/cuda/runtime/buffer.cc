#include "shard/device/cuda/runtime/buffer.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

void FreeDeviceMemory(void* data) { cudaFree(data); }
void FreePinnedMemory(void* data) { cudaFreeHost(data); }

absl::StatusOr<DeviceBuffer> AllocateDevice(uint64_t bytes, absl::string_view what) {
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, bytes),
                                  absl::StrCat(bytes, " bytes of device memory for ", what)));
  return DeviceBuffer(data, bytes);
}

absl::StatusOr<PinnedBuffer> AllocatePinned(uint64_t bytes, absl::string_view what) {
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&data, bytes, cudaHostAllocDefault),
                                  absl::StrCat(bytes, " bytes of pinned memory for ", what)));
  return PinnedBuffer(data, bytes);
}

}  // namespace weft::shard
