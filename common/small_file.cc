#include "common/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/regular_file.h"
#include "common/status.h"

namespace weft {
namespace {

// Where `path` leads: rename would replace a symbolic link itself. A path that leads nowhere yet
// stays what it is.
std::string Target(const std::string& path) {
  char* const resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return path;
  std::string target = resolved;
  std::free(resolved);
  return target;
}

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

// People name these files.
absl::Status WithWayOut(const absl::Status& why) {
  absl::string_view way_out;
  if (absl::IsNotFound(why)) way_out = "; put one there, or name another file";
  if (absl::IsPermissionDenied(why)) way_out = "; let the user read it that this process runs as";
  return absl::Status(why.code(), absl::StrCat(why.message(), way_out));
}

// Gives the new file what the old one at `target` had.
absl::Status CopyRights(int fd, const std::string& target, absl::optional<unsigned> mode) {
  struct stat old {};
  if (stat(target.c_str(), &old) == 0) {
    // Only root may give files away; somebody else's new file is then simply theirs.
    if (fchown(fd, old.st_uid, old.st_gid) != 0 && errno != EPERM) {
      return absl::ErrnoToStatus(errno, absl::StrCat(target, ": owner"));
    }
    mode = old.st_mode & 07777u;
  }
  if (fchmod(fd, mode.value_or(0600)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(target, ": mode"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max) {
  const absl::StatusOr<RegularFile> opened = OpenRegularFile(path);
  if (!opened.ok()) return WithWayOut(opened.status());
  const RegularFile& file = *opened;
  const int fd = file.fd;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  std::string bytes;
  // Its size may change while it is read: what counts is what comes.
  char buffer[16384];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, path);
    if (got == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(got) > bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is longer than the ", bytes_max, " bytes that are read"));
    }
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes,
                                 absl::optional<unsigned> mode) {
  const std::string target = Target(path);
  std::string temporary = absl::StrCat(target, ".XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  absl::Status status = WriteAll(fd, bytes, path);
  if (status.ok()) status = CopyRights(fd, target, mode);
  if (status.ok() && fsync(fd) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  }
  if (status.ok() && rename(temporary.c_str(), target.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be replaced"));
  }
  if (!status.ok()) {
    (void)unlink(temporary.c_str());
    return status;
  }
  // The name, too, must survive a power cut.
  const int folder = open(Folder(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return absl::ErrnoToStatus(errno, Folder(target));
  const absl::Cleanup close_folder = [folder] { close(folder); };
  // Some file systems know no fsync of a directory.
  if (fsync(folder) != 0 && errno != EINVAL) return absl::ErrnoToStatus(errno, Folder(target));
  return absl::OkStatus();
}

}  // namespace weft
