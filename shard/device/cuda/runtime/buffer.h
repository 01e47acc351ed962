// Memory for the device: on it, or pinned on the host where it copies from and to. Owned by whoever
// holds the object, on the device that was current when it was taken; freed with it. Taken at load
// only (invariant mem.plan).

#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::shard {

// Frees what its allocation took.
template <void (*kFree)(void*)>
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(void* data, uint64_t bytes) : data_(static_cast<uint8_t*>(data)), bytes_(bytes) {}
  ~CudaMemory() {
    if (data_ != nullptr) kFree(data_);
  }
  CudaMemory(CudaMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

void FreeDeviceMemory(void* data);
void FreePinnedMemory(void* data);
using DeviceBuffer = CudaMemory<FreeDeviceMemory>;
using PinnedBuffer = CudaMemory<FreePinnedMemory>;

// 256-byte aligned, not initialised. `what` names it in RESOURCE_EXHAUSTED.
absl::StatusOr<DeviceBuffer> AllocateDevice(uint64_t bytes, absl::string_view what);
// Page-aligned, not initialised.
absl::StatusOr<PinnedBuffer> AllocatePinned(uint64_t bytes, absl::string_view what);

// Of the parts of one allocation on the device.
inline constexpr uint64_t kDeviceAlignment = 256;

}  // namespace weft::shard
