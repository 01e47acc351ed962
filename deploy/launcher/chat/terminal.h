// The terminal that a conversation runs in: its modes, which are given back whatever ends the
// process, and what is written to it. Main thread, but for Restore().

#pragma once

#include <termios.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::launcher {

// Whether its cursor can be moved, which editing takes. "dumb" and its kin take lines as they are.
bool TerminalEditsLines();

// While it lives, keys that are pressed beside the line editor are not shown and wait for it, and a
// paste arrives marked as one. Ctrl-C still is a signal.
class TerminalMode {
 public:
  // UNAVAILABLE when standard input is no terminal.
  static absl::StatusOr<std::unique_ptr<TerminalMode>> Begin();
  ~TerminalMode() { Restore(); }
  TerminalMode(const TerminalMode&) = delete;
  TerminalMode& operator=(const TerminalMode&) = delete;

  // Has it send pastes marked, which the line editor turns off when a line ends.
  void MarkPastes() const;
  // Gives the modes back that were found. Any thread; before a signal ends the process, too.
  void Restore() const;

 private:
  explicit TerminalMode(const termios& found) : found_(found) {}
  const termios found_;
};

// Whether standard output is a terminal that understands styles, and NO_COLOR is not set.
bool StandardOutputHasStyles();

// Writes all of `text` to standard output at once. False when it cannot be: its reader is gone.
bool WriteOut(absl::string_view text);

}  // namespace weft::launcher
