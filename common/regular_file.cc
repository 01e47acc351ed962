#include "common/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path) {
  // To open a pipe would wait for its writer, a device may do anything: neither is a file, and
  // O_NONBLOCK lets fstat say so. On a regular file it means nothing.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  std::move(close_fd).Cancel();
  return RegularFile{fd, static_cast<uint64_t>(info.st_size)};
}

}  // namespace weft
