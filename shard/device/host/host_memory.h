// Anonymous memory of the process in large pages where the kernel grants them: weights, KV pool,
// workspace. Zero until written, and not resident until touched. Move-only owner; taken at load or
// Warmup only (invariant mem.plan).

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::shard {

class HostMemory {
 public:
  // Maps `bytes` (rounded up to 2 MiB). RESOURCE_EXHAUSTED saying for what and how much.
  static absl::StatusOr<HostMemory> Map(size_t bytes, absl::string_view purpose);

  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  // 2 MiB aligned; null when empty.
  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  HostMemory(uint8_t* data, size_t bytes) : data_(data), bytes_(bytes) {}

  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace weft::shard
