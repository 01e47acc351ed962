// The disk's side of a pull: locks, blobs that grow, snapshots of links, references. Each step is
// whole or not done when a process dies in it. Used on a pull's one thread; waits for the disk.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/launcher/hub/cache_layout.h"
#include "deploy/launcher/hub/digest.h"
#include "deploy/launcher/hub/file_list.h"

namespace weft::hub {

// A lock on a file (flock), as huggingface_hub takes it. It ends with its process.
class FileLock {
 public:
  // Null when another process has it.
  static absl::StatusOr<std::unique_ptr<FileLock>> Try(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  const int fd_;
};

// mkdir -p. Messages name the directory and the way out.
absl::Status MakeDirs(const std::string& path);

// Whether the blob is there whole: of its size.
bool HasBlob(const CacheLayout& layout, const HubFile& file);
// Bytes of it that an earlier pull has left; 0 = none.
uint64_t IncompleteBytes(const CacheLayout& layout, const HubFile& file);

// A blob while it is fetched. Owns its lock.
class GrowingBlob {
 public:
  // Null when another process fetches it. `file` has a size and a name.
  static absl::StatusOr<std::unique_ptr<GrowingBlob>> Open(const CacheLayout& layout,
                                                           const HubFile& file);
  ~GrowingBlob();
  GrowingBlob(const GrowingBlob&) = delete;
  GrowingBlob& operator=(const GrowingBlob&) = delete;

  // Bytes on the disk.
  uint64_t bytes() const { return bytes_; }
  // Reads what an earlier pull left, at most `bytes_max` of it in a call, for the digest; true when
  // all of it was read. Append comes after that.
  absl::StatusOr<bool> ReadBack(uint64_t bytes_max);
  absl::Status Append(absl::string_view bytes);
  // All bytes are there: checks their digest and makes them the blob. DATA_LOSS when they are not
  // what the hub's list says; then nothing of them is left.
  absl::Status Finish();
  // Begins anew, with nothing.
  absl::Status Clear();

 private:
  GrowingBlob(const CacheLayout& layout, const HubFile& file, std::unique_ptr<FileLock> lock,
              int fd, uint64_t bytes);

  const HubFile file_;
  const std::string path_;
  const std::string blob_path_;
  const std::unique_ptr<FileLock> lock_;
  const int fd_;
  uint64_t bytes_;
  uint64_t read_back_ = 0;
  // From where on the kernel was not yet told to write.
  uint64_t unwritten_from_ = 0;
  Digest digest_;
};

// Makes `files` show in the snapshot of `commit`: a snapshot that was not there appears whole;
// others get the links that they lack, those last that make a model whole.
absl::Status LinkSnapshot(const CacheLayout& layout, const std::string& commit,
                          std::vector<HubFile> files);

// Notes which commit `revision` means, unless it is a commit itself.
absl::Status WriteRef(const CacheLayout& layout, const std::string& revision,
                      const std::string& commit);

// OK when `path`'s disk has room for `bytes` more. RESOURCE_EXHAUSTED says what is missing.
absl::Status CheckDiskSpace(const std::string& path, uint64_t bytes);

}  // namespace weft::hub
