// Text that a terminal shows and never obeys. What a model, a server or a file says may hold escape
// sequences, which move the cursor, change titles or answer as the keyboard would: each control
// character becomes a visible sign instead. Pure; used by the one thread that writes.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weft::launcher {

// For text that comes in pieces: the same bytes give the same output however they are cut.
//
// Line breaks and tabs pass, "\r\n" as a line break. Other control characters below U+0020 and
// U+007F become their pictures (U+2400 ..), C1 controls, separators of lines and characters that
// turn the direction of what follows become "<U+009B>". What is no UTF-8 becomes U+FFFD a byte.
class TerminalText {
 public:
  std::string Add(absl::string_view bytes);
  // What was held: the beginning of a character, a carriage return.
  std::string Finish();

 private:
  std::string Take(bool finished);
  std::string pending_;
};

// A whole text at once.
std::string ForTerminal(absl::string_view text);

}  // namespace weft::launcher
