#include "deploy/launcher/run_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log.h"

namespace weft::launcher {
namespace {

constexpr absl::string_view kPrefix = "weft-";
constexpr size_t kRandomLetters = 6;
constexpr char kLock[] = "lock";
// The longest name in the folder, with the slash before it.
constexpr absl::string_view kLongestSocket = "/supervisor.sock";
// Somebody may take the new folder for a dead one before it is locked; not again and again.
constexpr int kTries = 8;

bool IsRunDirName(absl::string_view name) {
  return name.size() == kPrefix.size() + kRandomLetters && absl::StartsWith(name, kPrefix) &&
         std::all_of(name.begin() + kPrefix.size(), name.end(), absl::ascii_isalnum);
}

// Takes the lock of the folder `dir_fd`; -1 when another holds it, or there is none to take.
int TryLock(int dir_fd, int extra_flags) {
  const int fd = openat(dir_fd, kLock, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | extra_flags,
                        S_IRUSR | S_IWUSR);
  if (fd < 0) return -1;
  struct stat own {};
  struct stat named {};
  // The name may have been removed, with its folder, before the lock was taken.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &own) == 0 &&
      fstatat(dir_fd, kLock, &named, AT_SYMLINK_NOFOLLOW) == 0 && own.st_ino == named.st_ino) {
    return fd;
  }
  close(fd);
  return -1;
}

// Removes sockets, configuration and lock, then the folder when nothing else is in it.
bool RemoveKnown(int parent_fd, const char* name, int dir_fd) {
  const int listing = dup(dir_fd);
  DIR* const dir = listing < 0 ? nullptr : fdopendir(listing);
  if (dir == nullptr) return false;
  rewinddir(dir);
  while (const dirent* entry = readdir(dir)) {
    const absl::string_view known = entry->d_name;
    if (absl::EndsWith(known, ".sock") || absl::StrContains(known, ".conf")) {
      unlinkat(dir_fd, entry->d_name, 0);
    }
  }
  closedir(dir);
  // The lock last: who finds the folder without it may remove it only when it is empty.
  unlinkat(dir_fd, kLock, 0);
  return unlinkat(parent_fd, name, AT_REMOVEDIR) == 0;
}

void RemoveIfDead(int parent_fd, const char* name) {
  const int dir_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir_fd < 0) return;
  const absl::Cleanup close_dir = [dir_fd] { close(dir_fd); };
  struct stat info {};
  if (fstat(dir_fd, &info) != 0 || info.st_uid != geteuid()) return;
  const int lock_fd = TryLock(dir_fd, 0);
  if (lock_fd >= 0) {
    if (RemoveKnown(parent_fd, name, dir_fd)) {
      WEFT_LOG_INFO("removed the run directory of a launcher that was killed: {}", name);
    }
    close(lock_fd);
  } else {
    // Its owner lives, or it has no lock: then only an empty one goes, and a starting owner who
    // loses his that way makes another.
    unlinkat(parent_fd, name, AT_REMOVEDIR);
  }
}

void RemoveDead(const std::string& parent) {
  DIR* const dir = opendir(parent.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (IsRunDirName(entry->d_name)) RemoveIfDead(dirfd(dir), entry->d_name);
  }
  closedir(dir);
}

// A locked folder in `parent`: its path and the lock; a lock of -1 with errno.
std::pair<std::string, int> Make(const std::string& parent) {
  for (int i = 0; i < kTries; ++i) {
    std::string path = absl::StrCat(parent, "/", kPrefix, std::string(kRandomLetters, 'X'));
    if (mkdtemp(path.data()) == nullptr) return {path, -1};
    const int dir_fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int lock_fd = dir_fd < 0 ? -1 : TryLock(dir_fd, O_CREAT);
    const int error = errno;
    if (dir_fd >= 0) close(dir_fd);
    if (lock_fd >= 0) return {path, lock_fd};
    rmdir(path.c_str());
    errno = error;
  }
  return {"", -1};
}

}  // namespace

std::vector<std::string> RunDir::DefaultParents() {
  std::vector<std::string> parents;
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] != '\0') parents.emplace_back(runtime);
  parents.emplace_back("/tmp");
  return parents;
}

absl::StatusOr<std::unique_ptr<RunDir>> RunDir::Create(const std::vector<std::string>& parents) {
  std::vector<std::string> reasons;
  for (const std::string& parent : parents) {
    const size_t bytes =
        parent.size() + 1 + kPrefix.size() + kRandomLetters + kLongestSocket.size();
    if (bytes >= kSocketPathBytesMax) {
      reasons.push_back(absl::StrCat(parent, ": too long for the path of a Unix socket (", bytes,
                                     " bytes of at most ", kSocketPathBytesMax - 1, ")"));
      continue;
    }
    RemoveDead(parent);
    auto [path, lock_fd] = Make(parent);
    if (lock_fd < 0) {
      reasons.push_back(absl::StrCat(parent, ": ", std::strerror(errno)));
      continue;
    }
    if (!reasons.empty()) {
      WEFT_LOG_WARN("the run directory is {}, because {}", path, absl::StrJoin(reasons, "; "));
    }
    return std::unique_ptr<RunDir>(
        new RunDir(std::move(path), absl::StrJoin(reasons, "; "), lock_fd));
  }
  return absl::UnavailableError(
      absl::StrCat("cannot make a run directory for sockets: ", absl::StrJoin(reasons, "; "),
                   "; set XDG_RUNTIME_DIR to a writable directory with a short path"));
}

RunDir::~RunDir() {
  const size_t slash = path_.rfind('/');
  const int parent_fd = open(path_.substr(0, slash).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int dir_fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (parent_fd >= 0 && dir_fd >= 0) {
    RemoveKnown(parent_fd, path_.c_str() + slash + 1, dir_fd);
  }
  for (const int fd : {dir_fd, parent_fd, lock_fd_}) {
    if (fd >= 0) close(fd);
  }
}

}  // namespace weft::launcher
