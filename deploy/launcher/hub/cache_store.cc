#include "deploy/launcher/hub/cache_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/model_path.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/progress.h"

namespace weft::hub {
namespace {

// So much is handed to the disk at a time, so that the end of a file does not wait for all of it.
constexpr uint64_t kWriteBackBytes = uint64_t{32} << 20;
constexpr size_t kReadBackBytes = size_t{1} << 20;

absl::Status ErrnoAt(const std::string& path) {
  const int error = errno;
  const char* const way_out =
      error == EACCES || error == EPERM || error == EROFS
          ? "; name a cache that this user may write by HF_HOME or HF_HUB_CACHE"
      : error == ENOSPC || error == EDQUOT
          ? "; free some space, then the same command goes on where it was"
          : "";
  const absl::Status status = absl::ErrnoToStatus(error, path);
  return absl::Status(status.code(), absl::StrCat(status.message(), way_out));
}

// The beginning of `path`, up to its last slash.
std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Links appear in this order: a server takes a model for whole when its configuration and all of
// its weights are there.
int LinkOrder(const HubFile& file) {
  if (file.path == "config.json") return 2;
  return file.path == kSafetensorsIndexName || file.path == kSafetensorsSingleName ||
                 absl::EndsWith(file.path, ".gguf")
             ? 1
             : 0;
}

absl::Status MakeLink(const std::string& target, const std::string& path) {
  WEFT_RETURN_IF_ERROR(MakeDirs(FolderOf(path)));
  if (symlink(target.c_str(), path.c_str()) == 0) return absl::OkStatus();
  if (errno != EEXIST) return ErrnoAt(path);
  // What is there may be another program's way to keep the same file.
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) return absl::OkStatus();
  const std::string fresh = absl::StrCat(path, ".weft-link");
  unlink(fresh.c_str());
  if (symlink(target.c_str(), fresh.c_str()) != 0 || rename(fresh.c_str(), path.c_str()) != 0) {
    return ErrnoAt(path);
  }
  return absl::OkStatus();
}

absl::Status LinkAll(const std::string& folder, const std::vector<HubFile>& files) {
  for (const HubFile& file : files) {
    WEFT_RETURN_IF_ERROR(MakeLink(CacheLayout::LinkTarget(file.path, file.blob.text),
                                  absl::StrCat(folder, "/", file.path)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Try(const std::string& path) {
  WEFT_RETURN_IF_ERROR(MakeDirs(FolderOf(path)));
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (fd < 0) return ErrnoAt(path);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return std::unique_ptr<FileLock>(new FileLock(fd));
  const bool busy = errno == EWOULDBLOCK;
  const absl::Status status = ErrnoAt(path);
  close(fd);
  if (!busy) return status;
  return std::unique_ptr<FileLock>();
}

FileLock::~FileLock() { close(fd_); }

absl::Status MakeDirs(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  errno = error.value();
  return ErrnoAt(path);
}

bool HasBlob(const CacheLayout& layout, const HubFile& file) {
  struct stat info {};
  return stat(layout.Blob(file.blob.text).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         (!file.bytes.has_value() || static_cast<uint64_t>(info.st_size) == *file.bytes);
}

uint64_t IncompleteBytes(const CacheLayout& layout, const HubFile& file) {
  struct stat info {};
  if (stat(layout.Incomplete(file.blob.text).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return 0;
  }
  const auto bytes = static_cast<uint64_t>(info.st_size);
  return bytes <= file.bytes.value_or(0) ? bytes : 0;
}

absl::StatusOr<std::unique_ptr<GrowingBlob>> GrowingBlob::Open(const CacheLayout& layout,
                                                               const HubFile& file) {
  WEFT_ASSIGN_OR_RETURN(auto lock, FileLock::Try(layout.BlobLock(file.blob.text)));
  if (lock == nullptr) return std::unique_ptr<GrowingBlob>();
  const std::string path = layout.Incomplete(file.blob.text);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return ErrnoAt(path);
  const uint64_t have = IncompleteBytes(layout, file);
  std::unique_ptr<GrowingBlob> blob(new GrowingBlob(layout, file, std::move(lock), fd, have));
  if (have == 0) WEFT_RETURN_IF_ERROR(blob->Clear());
  return blob;
}

GrowingBlob::GrowingBlob(const CacheLayout& layout, const HubFile& file,
                         std::unique_ptr<FileLock> lock, int fd, uint64_t bytes)
    : file_(file),
      path_(layout.Incomplete(file.blob.text)),
      blob_path_(layout.Blob(file.blob.text)),
      lock_(std::move(lock)),
      fd_(fd),
      bytes_(bytes),
      unwritten_from_(bytes),
      digest_(file.blob.kind, file.bytes.value_or(0)) {}

GrowingBlob::~GrowingBlob() {
  close(fd_);
  // Where nothing came nothing is kept.
  if (bytes_ == 0) unlink(path_.c_str());
}

absl::StatusOr<bool> GrowingBlob::ReadBack(uint64_t bytes_max) {
  std::string buffer(kReadBackBytes, '\0');
  const uint64_t end = std::min(bytes_, read_back_ + bytes_max);
  while (read_back_ < end) {
    const ssize_t got =
        pread(fd_, buffer.data(), std::min<uint64_t>(buffer.size(), end - read_back_),
              static_cast<off_t>(read_back_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoAt(path_);
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, " shrank while it was read"));
    digest_.Add({buffer.data(), static_cast<size_t>(got)});
    read_back_ += static_cast<uint64_t>(got);
  }
  return read_back_ == bytes_;
}

absl::Status GrowingBlob::Append(absl::string_view bytes) {
  WEFT_CHECK(read_back_ == bytes_);
  digest_.Add(bytes);
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoAt(path_);
    bytes.remove_prefix(static_cast<size_t>(wrote));
    bytes_ += static_cast<uint64_t>(wrote);
  }
  read_back_ = bytes_;
  if (bytes_ - unwritten_from_ >= kWriteBackBytes) {
    // A hint; where it is not understood the end of the file takes longer.
    sync_file_range(fd_, static_cast<off_t>(unwritten_from_),
                    static_cast<off_t>(bytes_ - unwritten_from_), SYNC_FILE_RANGE_WRITE);
    unwritten_from_ = bytes_;
  }
  return absl::OkStatus();
}

absl::Status GrowingBlob::Finish() {
  const std::string found = digest_.Finish();
  if (!found.empty() && found != file_.blob.text) {
    unlink(path_.c_str());
    bytes_ = 0;
    return absl::DataLossError(
        absl::StrCat(file_.path, ": the bytes that came are not those of the hub's list (its ",
                     file_.blob.kind == BlobName::Kind::kSha256 ? "SHA-256" : "git SHA-1", " is ",
                     file_.blob.text, ", theirs is ", found, "); they were thrown away"));
  }
  if (fdatasync(fd_) != 0 || rename(path_.c_str(), blob_path_.c_str()) != 0) {
    return ErrnoAt(path_);
  }
  return absl::OkStatus();
}

absl::Status GrowingBlob::Clear() {
  if (ftruncate(fd_, 0) != 0) return ErrnoAt(path_);
  bytes_ = read_back_ = unwritten_from_ = 0;
  digest_ = Digest(file_.blob.kind, file_.bytes.value_or(0));
  return absl::OkStatus();
}

absl::Status LinkSnapshot(const CacheLayout& layout, const std::string& commit,
                          std::vector<HubFile> files) {
  std::stable_sort(files.begin(), files.end(),
                   [](const HubFile& a, const HubFile& b) { return LinkOrder(a) < LinkOrder(b); });
  const std::string snapshot = layout.Snapshot(commit);
  WEFT_RETURN_IF_ERROR(MakeDirs(layout.snapshots_dir()));
  struct stat info {};
  if (stat(snapshot.c_str(), &info) == 0) return LinkAll(snapshot, files);
  // One name is enough: pulls of a model exclude each other.
  const std::string building = absl::StrCat(layout.model_dir(), "/.weft-snapshot");
  std::error_code ignored;
  std::filesystem::remove_all(building, ignored);
  WEFT_RETURN_IF_ERROR(LinkAll(building, files));
  if (rename(building.c_str(), snapshot.c_str()) == 0) return absl::OkStatus();
  if (errno != EEXIST && errno != ENOTEMPTY) return ErrnoAt(snapshot);
  // Another program has made it meanwhile.
  std::filesystem::remove_all(building, ignored);
  return LinkAll(snapshot, files);
}

absl::Status WriteRef(const CacheLayout& layout, const std::string& revision,
                      const std::string& commit) {
  if (revision == commit) return absl::OkStatus();
  const std::string path = layout.Ref(revision);
  if (const auto old = ReadSmallFile(path, 64); old.ok() && *old == commit) {
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(MakeDirs(FolderOf(path)));
  return WriteFileAtomically(path, commit, 0644);
}

absl::Status CheckDiskSpace(const std::string& path, uint64_t bytes) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) return ErrnoAt(path);
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (bytes == 0 || free >= bytes + kDiskMarginBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      path, ": ", FormatBytes(static_cast<double>(bytes)), " more are to be written there, and ",
      FormatBytes(static_cast<double>(free)), " are free (", FormatBytes(kDiskMarginBytes),
      " stay so); free some, or name a cache on another disk by HF_HOME or HF_HUB_CACHE"));
}

}  // namespace weft::hub
