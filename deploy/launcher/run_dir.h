// The private folder of one `weft serve` for its sockets. Owned by the launcher's server object,
// used on its main thread. Its owner holds a lock on the file `lock` in it for as long as it lives,
// however it ends, so that the next launcher can tell a dead folder from a living one: a process id
// could not, since containers use the same ones again. Never touches what it does not know.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::launcher {

class RunDir {
 public:
  // Paths of sockets in it are shorter than this, as Unix sockets need.
  static constexpr size_t kSocketPathBytesMax = 100;

  // Makes "weft-XXXXXX" with mode 0700 in the first of `parents` that serves: short enough, there,
  // writable; why another was passed over is logged. Before that, removes the folders that dead
  // launchers of this user left in these parents. UNAVAILABLE, with the way out, when none serves.
  static absl::StatusOr<std::unique_ptr<RunDir>> Create(const std::vector<std::string>& parents);
  // $XDG_RUNTIME_DIR when it is set, then /tmp.
  static std::vector<std::string> DefaultParents();

  // Removes the folder.
  ~RunDir();

  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  const std::string& path() const { return path_; }
  // Why parents before the one that serves do not; empty = the first one did.
  const std::string& passed_over() const { return passed_over_; }

 private:
  RunDir(std::string path, std::string passed_over, int lock_fd)
      : path_(std::move(path)), passed_over_(std::move(passed_over)), lock_fd_(lock_fd) {}

  const std::string path_;
  const std::string passed_over_;
  const int lock_fd_;
};

}  // namespace weft::launcher
