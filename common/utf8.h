// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Pure; used by
// whoever writes text from outside into a format that must stay valid.

#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace weft {

// Bytes of the character that `text` begins with, 1 .. 4; 0 when it begins with none (a stray or
// cut byte) or is empty.
size_t Utf8CharacterBytes(absl::string_view text);

}  // namespace weft
