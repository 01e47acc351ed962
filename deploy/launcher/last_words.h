// Why a child ends, as its own lines say it: what shards and routers write last to stderr, as they
// do (common/log.h). Pure; main thread of the launcher.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weft::launcher {

// The reason in a line of stderr of the process "weft-shard", "weft-router" or of their logs: in
// "weft-shard: reason", in an error of the text log or of the JSON log. Empty when the line is none
// of these. At most kLastWordsBytesMax bytes.
std::string LastWords(absl::string_view line);

// Whether a line is one of a JSON log: nothing else may stand there.
bool IsJsonObject(absl::string_view line);

inline constexpr size_t kLastWordsBytesMax = 800;

}  // namespace weft::launcher
