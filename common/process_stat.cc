#include "common/process_stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weft {

std::optional<ProcessStat> ReadProcessStat(uint64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line, '\0')) return std::nullopt;
  // proc(5): the name in parentheses may hold blanks and line ends; utime, stime and starttime are
  // the 12th, 13th and 20th words after it, in clock ticks.
  constexpr size_t kFlags = 6, kUser = 11, kSystem = 12, kStart = 19;
  // PF_EXITING of the kernel's sched.h.
  constexpr uint64_t kExiting = 4;
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(line).substr(end + 1), ' ', absl::SkipEmpty());
  int64_t user_ticks = 0;
  int64_t system_ticks = 0;
  uint64_t flags = 0;
  ProcessStat stat;
  // A zombie waits to be reaped and is gone for all else.
  if (words.size() <= kStart || words[0] == "Z" || words[0] == "X" ||
      !absl::SimpleAtoi(words[kFlags], &flags) || !absl::SimpleAtoi(words[kUser], &user_ticks) ||
      !absl::SimpleAtoi(words[kSystem], &system_ticks) ||
      !absl::SimpleAtoi(words[kStart], &stat.start_ticks)) {
    return std::nullopt;
  }
  stat.cpu_us = (user_ticks + system_ticks) * (1'000'000 / sysconf(_SC_CLK_TCK));
  stat.ending = (flags & kExiting) != 0;
  return stat;
}

uint64_t PidNamespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

uint64_t ProportionalBytes(uint64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/smaps_rollup"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() >= 2 && words[0] == "Pss:" && absl::SimpleAtoi(words[1], &kib)) {
      return kib << 10;
    }
  }
  return 0;
}

uint64_t ResidentBytes() {
  // Without a stream: the router looks ten times a second.
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char line[256];
  const ssize_t length = read(file, line, sizeof(line));
  close(file);
  if (length <= 0) return 0;
  // The second number, in pages.
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(line, static_cast<size_t>(length)), ' ');
  uint64_t pages = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pages)) return 0;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int OpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int count = -3;  // ".", ".." and the descriptor of the directory itself
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

}  // namespace weft
