// A file mapped read-only into memory, with advice to the kernel about its pages. Owned by the
// readers of model files (common/gguf, shard/weights/safetensors); thread-safe after Open. The file
// must not shrink while it is mapped: the kernel answers a read behind its end with SIGBUS.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft {

class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED and so on as open(2) says; INVALID_ARGUMENT when `path` is no
  // regular file or is empty. Messages begin with `path`.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }

  // Asks the kernel to read `range` (a part of bytes()) ahead. Never waits for the disk.
  void WillNeed(absl::Span<const uint8_t> range) const;
  // Reads `range` in and maps its pages, all at once instead of by a page fault each. DATA_LOSS
  // when the disk or the file gives out on the way.
  absl::Status Populate(absl::Span<const uint8_t> range) const;
  // Takes the pages that lie wholly inside `range` out of this process; they stay in the page cache
  // and come back on use.
  void Drop(absl::Span<const uint8_t> range) const;

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  // madvise on all pages that touch `range`; 0 or errno.
  int Advise(absl::Span<const uint8_t> range, int advice) const;

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weft
