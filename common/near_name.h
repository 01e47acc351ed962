// Which of a few names somebody may have meant who typed another one. For messages to people, off
// every hot path. Pure; any thread.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// The one of `names` that the fewest letters put in, left out, replaced or swapped with their
// neighbour lead to from `typed`, the first of several; empty when that takes more than a third of
// its letters.
std::string NearName(absl::string_view typed, const std::vector<std::string>& names);

}  // namespace weft
