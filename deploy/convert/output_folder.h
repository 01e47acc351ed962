// The files that one conversion adds to a directory: written under names of their own that begin
// with a dot, and given their names together at the end. Never overwrites; what was not committed
// is removed, also when it is interrupted. Owned by the conversion, one thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::convert {

class OutputFolder {
 public:
  // Makes the directory where there is none; its parent must exist. Errors begin with the path.
  static absl::StatusOr<OutputFolder> Open(const std::string& path);

  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();

  // OK when `bytes` more fit on the disk. RESOURCE_EXHAUSTED says how much is missing.
  absl::Status CheckRoom(uint64_t bytes) const;
  // A descriptor to write the file `name` to, a plain name. ALREADY_EXISTS when it is there.
  absl::StatusOr<int> Begin(const std::string& name);
  // The file of the last Begin() is whole: on the disk when this returns.
  absl::Status End();
  // Begin, `bytes`, End.
  absl::Status Add(const std::string& name, absl::string_view bytes);
  // Gives all files their names, in the order of their beginning. When one cannot have its name,
  // those before it lose theirs again.
  absl::Status Commit();

  const std::string& path() const { return path_; }

 private:
  OutputFolder(std::string path, bool made) : path_(std::move(path)), made_(made) {}
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  std::string StagedPathOf(const std::string& name) const;

  std::string path_;
  // The directory was made here.
  bool made_;
  int fd_ = -1;
  bool committed_ = false;
  std::vector<std::string> names_;
};

}  // namespace weft::convert
