// The level of the log while the process runs. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "spdlog/common.h"

namespace weft {

// "trace", "debug", "info", "warn" or "error"; INVALID_ARGUMENT naming --log-level otherwise.
absl::StatusOr<spdlog::level::level_enum> ParseLogLevel(absl::string_view text);

// Says `news`, a line on why, in the louder of the old and the new level, so that it is not lost.
void ChangeLogLevel(spdlog::level::level_enum level, const std::string& news);

}  // namespace weft
