// Memory for the device: on it, or pinned on the host where it copies from and to. Owned by whoever
// holds the object, on the device that was current when it was taken; freed with it. Taken at load
// only (invariant mem.plan).

#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::shard {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // 256-byte aligned, not initialised. `what` names it in RESOURCE_EXHAUSTED.
  static absl::StatusOr<DeviceBuffer> Allocate(uint64_t bytes, absl::string_view what);
  ~DeviceBuffer();

  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
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

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // Page-aligned, not initialised.
  static absl::StatusOr<PinnedBuffer> Allocate(uint64_t bytes, absl::string_view what);
  ~PinnedBuffer();

  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
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

// Deals out one allocation in 256-byte aligned parts. Over no memory it only counts.
class BufferParts {
 public:
  explicit BufferParts(uint8_t* base) : base_(base) {}

  template <typename T = uint8_t>
  T* Take(uint64_t count) {
    uint8_t* const part = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(part);
  }
  uint64_t used() const { return used_; }

 private:
  static constexpr uint64_t kAlignment = 256;
  uint8_t* const base_;
  uint64_t used_ = 0;
};

}  // namespace weft::shard
