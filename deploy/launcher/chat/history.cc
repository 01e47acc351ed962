#include "deploy/launcher/chat/history.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace weft::launcher {
namespace {

std::string Escaped(absl::string_view entry) {
  std::string line;
  for (const char byte : entry) {
    if (byte == '\n') {
      absl::StrAppend(&line, "\\n");
    } else if (byte == '\\') {
      absl::StrAppend(&line, "\\\\");
    } else {
      line.push_back(byte);
    }
  }
  return line;
}

std::string Unescaped(absl::string_view line) {
  std::string entry;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      entry.push_back(line[i]);
    } else {
      entry.push_back(line[++i] == 'n' ? '\n' : line[i]);
    }
  }
  return entry;
}

absl::Status Failed(const std::string& path, absl::string_view what) {
  const int number = errno;
  return absl::ErrnoToStatus(number, absl::StrCat(what, " ", path, " (--no-history keeps none)"));
}

// The last kEntriesMax lines of `text`.
std::vector<std::string> Lines(absl::string_view text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (lines.size() > History::kEntriesMax) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(History::kEntriesMax));
  }
  return lines;
}

// The file's end, at most `bytes_max` of it, from the beginning of a line on.
absl::StatusOr<std::string> ReadEnd(int file, const std::string& path, size_t bytes_max) {
  struct stat info {};
  if (fstat(file, &info) != 0) return Failed(path, "cannot read");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no regular file (--no-history keeps none)"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  const size_t from = size > bytes_max ? size - bytes_max : 0;
  std::string text(size - from, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t bytes =
        pread(file, &text[got], text.size() - got, static_cast<off_t>(from + got));
    if (bytes < 0) return Failed(path, "cannot read");
    if (bytes == 0) break;
    got += static_cast<size_t>(bytes);
  }
  text.resize(got);
  if (from > 0) text.erase(0, std::min(text.find('\n'), text.size()));
  return text;
}

absl::Status WriteAll(int file, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0) return Failed(path, "cannot write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Who has the lock gives it back within microseconds, unless its process was stopped just then.
absl::Status Lock(int file, const std::string& path) {
  constexpr int kTries = 100;
  constexpr int kPauseMs = 10;
  for (int i = 0; flock(file, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK || i == kTries) return Failed(path, "cannot lock");
    poll(nullptr, 0, kPauseMs);
  }
  return absl::OkStatus();
}

// Each folder above `path` that is missing, for its user alone.
absl::Status MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Failed(folder, "cannot make");
  }
  return absl::OkStatus();
}

// Once it has twice as much as it may have, so that few messages pay for it.
absl::Status CutIfLong(int file, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadEnd(file, path, 2 * History::kFileBytesMax));
  const size_t entries = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (entries < 2 * History::kEntriesMax && text.size() < 2 * History::kFileBytesMax) {
    return absl::OkStatus();
  }
  std::string kept;
  for (const std::string& line : Lines(text)) absl::StrAppend(&kept, line, "\n");
  while (kept.size() > History::kFileBytesMax) kept.erase(0, kept.find('\n') + 1);
  if (ftruncate(file, 0) != 0) return Failed(path, "cannot cut");
  return WriteAll(file, path, kept);
}

}  // namespace

absl::StatusOr<std::string> History::DefaultPath() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  // The specification ignores relative paths.
  if (state != nullptr && state[0] == '/') return absl::StrCat(state, "/weft/chat_history");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') {
    return absl::StrCat(home, "/.local/state/weft/chat_history");
  }
  return absl::NotFoundError("neither XDG_STATE_HOME nor HOME names a folder for the history");
}

absl::StatusOr<std::vector<std::string>> History::Load() const {
  // Not waited for: a FIFO is refused below.
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    if (errno == ENOENT) return std::vector<std::string>();
    return Failed(path_, "cannot open");
  }
  absl::Cleanup close_it = [file] { close(file); };
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadEnd(file, path_, kFileBytesMax));
  std::vector<std::string> entries;
  for (const std::string& line : Lines(text)) entries.push_back(Unescaped(line));
  return entries;
}

absl::Status History::Append(absl::string_view entry) const {
  if (entry.empty() || entry.size() > kEntryBytesMax) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(MakeFolders(path_));
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return Failed(path_, "cannot open");
  absl::Cleanup close_it = [file] { close(file); };
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " is no regular file (--no-history keeps none)"));
  }
  // Given back by close.
  WEFT_RETURN_IF_ERROR(Lock(file, path_));
  if (fchmod(file, 0600) != 0) return Failed(path_, "cannot make private");
  WEFT_RETURN_IF_ERROR(WriteAll(file, path_, absl::StrCat(Escaped(entry), "\n")));
  return CutIfLong(file, path_);
}

}  // namespace weft::launcher
