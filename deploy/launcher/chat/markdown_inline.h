// Bold, italics, strike-through and code inside a line of Markdown, while the line still arrives.
// Pure; a part of markdown.h.
//
// A marker is shown as it was written unless its end comes on the same line within kHeldBytesMax:
// until then the text from the marker on is held. So nothing that was written is lost, and what is
// printed depends on the text alone and not on the pieces that it came in. Asterisks and
// underscores inside of words (2*3, snake_case) are no markers.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "deploy/launcher/chat/style.h"

namespace weft::launcher {

// Bytes between a marker and its end at most.
inline constexpr size_t kHeldBytesMax = 240;

// Appends what is settled at the beginning of `text` to *out and returns how many bytes of `text`
// that was; 0 = more has to come first. Stops before a line break, which is its caller's. `before`
// is the byte in front of `text` ('\n' at the beginning), brought up to date. `whole`: nothing more
// comes.
size_t TakeInline(absl::string_view text, bool whole, char* before, Styles* styles,
                  std::string* out);

}  // namespace weft::launcher
