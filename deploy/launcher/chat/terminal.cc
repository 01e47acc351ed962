#include "deploy/launcher/chat/terminal.h"

#include <strings.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"

namespace weft::launcher {
namespace {

constexpr char kMarkPastes[] = "\x1b[?2004h";
constexpr char kLeavePastes[] = "\x1b[?2004l";

bool TermIs(const char* name) {
  const char* const term = std::getenv("TERM");
  return term != nullptr && strcasecmp(term, name) == 0;
}

}  // namespace

// Those that the line editor takes for such, too.
bool TerminalEditsLines() { return !TermIs("dumb") && !TermIs("cons25") && !TermIs("emacs"); }

absl::StatusOr<std::unique_ptr<TerminalMode>> TerminalMode::Begin() {
  termios found;
  if (tcgetattr(STDIN_FILENO, &found) != 0) {
    return absl::UnavailableError("standard input is no terminal");
  }
  termios ours = found;
  auto mode = std::unique_ptr<TerminalMode>(new TerminalMode(found));
  if (!TerminalEditsLines()) return mode;
  // Enter stays what the line editor takes for it, should it be pressed too early.
  ours.c_iflag &= ~static_cast<tcflag_t>(ICRNL);
  ours.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN);
  ours.c_cc[VSUSP] = _POSIX_VDISABLE;
  ours.c_cc[VMIN] = 1;
  ours.c_cc[VTIME] = 0;
  if (tcsetattr(STDIN_FILENO, TCSADRAIN, &ours) != 0) {
    return absl::UnavailableError("the terminal's modes cannot be set");
  }
  mode->MarkPastes();
  return mode;
}

void TerminalMode::MarkPastes() const {
  if (TerminalEditsLines()) WriteOut(kMarkPastes);
}

void TerminalMode::Restore() const {
  if (TerminalEditsLines()) WriteOut(kLeavePastes);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &found_);
}

bool StandardOutputHasStyles() {
  const char* const no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || no_color[0] == '\0') &&
         std::getenv("TERM") != nullptr && TerminalEditsLines();
}

bool WriteOut(absl::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && written;
}

}  // namespace weft::launcher
