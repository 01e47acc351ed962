#include "deploy/convert/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "deploy/convert/safetensors_writer.h"

namespace weft::convert {
namespace {

absl::Status Exists(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, " exists and is never overwritten; move it away or choose another --to"));
}

bool IsThere(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

// Never replaces a file.
absl::Status Rename(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST) return Exists(to);
  // A file system that cannot promise it (NFS, some of FUSE): looked at first instead.
  if (errno != EINVAL && errno != ENOSYS) return absl::ErrnoToStatus(errno, to);
  if (IsThere(to)) return Exists(to);
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, to);
}

// What was renamed is on the disk afterwards.
absl::Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  // EINVAL: a file system whose directories need none.
  if (fsync(fd) == 0 || errno == EINVAL) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, path);
}

}  // namespace

absl::StatusOr<OutputFolder> OutputFolder::Open(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0) return OutputFolder(path, /*made=*/true);
  if (errno != EEXIST) {
    absl::Status status = absl::ErrnoToStatus(errno, path);
    if (!absl::IsNotFound(status)) return status;
    return absl::NotFoundError(
        absl::StrCat(path, ": the directory above it does not exist; make it first: mkdir -p"));
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no directory"));
  }
  return OutputFolder(path, /*made=*/false);
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : path_(std::move(other.path_)),
      made_(std::exchange(other.made_, false)),
      fd_(std::exchange(other.fd_, -1)),
      committed_(other.committed_),
      names_(std::exchange(other.names_, {})) {}

OutputFolder::~OutputFolder() {
  if (fd_ >= 0) close(fd_);
  if (committed_) return;
  for (const std::string& name : names_) unlink(StagedPathOf(name).c_str());
  if (made_) rmdir(path_.c_str());
}

std::string OutputFolder::StagedPathOf(const std::string& name) const {
  return absl::StrCat(path_, "/.", name, ".weft-", getpid());
}

absl::Status OutputFolder::CheckRoom(uint64_t bytes) const {
  struct statvfs disk {};
  if (statvfs(path_.c_str(), &disk) != 0) return absl::ErrnoToStatus(errno, path_);
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (bytes <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path_, ": needs ", bytes, " bytes, and its disk has ", free_bytes,
                   " left; free some or name a directory elsewhere with --to"));
}

absl::StatusOr<int> OutputFolder::Begin(const std::string& name) {
  if (IsThere(PathOf(name))) return Exists(PathOf(name));
  const std::string staged = StagedPathOf(name);
  fd_ = open(staged.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat(path_, ": nothing can be written there; name another with --to"));
  }
  names_.push_back(name);
  return fd_;
}

absl::Status OutputFolder::End() {
  const int fd = std::exchange(fd_, -1);
  const bool synced = fsync(fd) == 0 || errno == EINVAL;
  const int error = errno;
  if (close(fd) != 0 && synced) return absl::ErrnoToStatus(errno, PathOf(names_.back()));
  return synced ? absl::OkStatus() : absl::ErrnoToStatus(error, PathOf(names_.back()));
}

absl::Status OutputFolder::Add(const std::string& name, absl::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(const int fd, Begin(name));
  WEFT_RETURN_IF_ERROR(Annotate(
      WriteAll(fd, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}), PathOf(name)));
  return End();
}

absl::Status OutputFolder::Commit() {
  for (size_t i = 0; i < names_.size(); ++i) {
    const absl::Status renamed = Rename(StagedPathOf(names_[i]), PathOf(names_[i]));
    if (renamed.ok()) continue;
    for (size_t j = 0; j < i; ++j) unlink(PathOf(names_[j]).c_str());
    return renamed;
  }
  committed_ = true;
  return SyncFolder(path_);
}

}  // namespace weft::convert
