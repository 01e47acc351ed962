// Bytes as a file without a disk, for fuzz targets: a path under /proc that any reader can open.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"

namespace weft::test {

class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(memfd_create("weft-fuzz", MFD_CLOEXEC)) {
    WEFT_CHECK_GE(fd_, 0);
    while (size > 0) {
      const ssize_t written = write(fd_, data, size);
      WEFT_CHECK_GT(written, 0);
      data += written;
      size -= static_cast<size_t>(written);
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace weft::test
