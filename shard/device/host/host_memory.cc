#include "shard/device/host/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

absl::StatusOr<HostMemory> HostMemory::Map(size_t bytes, absl::string_view purpose) {
  const size_t wanted = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  // One huge page more, so that the start can be aligned; the unused ends are given back.
  void* mapped = mmap(nullptr, wanted + kHugePageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", wanted, " bytes for ", purpose, ": ", std::strerror(errno)));
  }
  auto* raw = static_cast<uint8_t*>(mapped);
  const size_t skip =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(raw) % kHugePageBytes) % kHugePageBytes;
  if (skip > 0) munmap(raw, skip);
  munmap(raw + skip + wanted, kHugePageBytes - skip);
  // Advice only: without huge pages everything works, 10 to 25 % slower.
  (void)madvise(raw + skip, wanted, MADV_HUGEPAGE);
  return HostMemory(raw + skip, wanted);
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace weft::shard
