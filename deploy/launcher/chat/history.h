// Messages that were typed, kept for the next conversations: a file of the user's own (0600) under
// $XDG_STATE_HOME/weft, where that is not set ~/.local/state/weft. Bounded in entries and bytes. A
// conversation that ends by kill -9 has written all but nothing of its last message. Several at a
// time may write: each adds its lines under a lock. Main thread; waits for the disk.
//
// A line is an entry, with "\n" for a line break and "\\" for a backslash.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::launcher {

class History {
 public:
  static constexpr size_t kEntriesMax = 1000;
  // A longer message is remembered until the conversation ends.
  static constexpr size_t kEntryBytesMax = 16 << 10;
  static constexpr size_t kFileBytesMax = 4 << 20;

  // NOT_FOUND when neither XDG_STATE_HOME nor HOME is set to an absolute path.
  static absl::StatusOr<std::string> DefaultPath();

  explicit History(std::string path) : path_(std::move(path)) {}

  // What the file holds, oldest first, at most kEntriesMax; nothing when there is no file. Errors
  // name the file and the way out.
  absl::StatusOr<std::vector<std::string>> Load() const;
  // Adds an entry and makes folder and file where they are missing. When the file has grown to
  // twice its bounds it is cut to them.
  absl::Status Append(absl::string_view entry) const;

 private:
  const std::string path_;
};

}  // namespace weft::launcher
