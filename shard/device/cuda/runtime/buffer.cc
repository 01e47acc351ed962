#include "shard/device/cuda/buffer.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(uint64_t bytes, absl::string_view what) {
  DeviceBuffer buffer;
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, bytes),
                                  absl::StrCat(bytes, " bytes of device memory for ", what)));
  buffer.data_ = static_cast<uint8_t*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Allocate(uint64_t bytes, absl::string_view what) {
  PinnedBuffer buffer;
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&data, bytes, cudaHostAllocDefault),
                                  absl::StrCat(bytes, " bytes of pinned memory for ", what)));
  buffer.data_ = static_cast<uint8_t*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace weft::shard
