// The form of an API key (router/doors/identity/api_key.h), known here so that no log line ever
// holds one, wherever a client has put it. Pure; any thread.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// Whether a part of `text` has the form of a key.
bool HoldsKey(absl::string_view text);

// `text` with each key in it cut to its first letters: "weft-AbCd[...]". Those tell two keys apart
// and leave more than 230 bits unknown.
std::string WithoutKeys(absl::string_view text);

}  // namespace weft
