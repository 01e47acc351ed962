// Logging for all processes: spdlog behind four macros, in text or JSON lines on stderr. A line
// carries ts, level, process and msg, and the fields rank, epoch, step, request_id where the caller
// gives them as "key=value" words. Prompts, texts and keys are never logged. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "spdlog/spdlog.h"

namespace weft {

enum class LogFormat { kText, kJson };

// Sets up the default logger. `process` is "router", "shard-0", "weft". `level` is one of trace,
// debug, info, warn, error; INVALID_ARGUMENT otherwise. Call once, first thing in main.
absl::Status InitLogging(const std::string& process, LogFormat format, const std::string& level);

// "text" or "json"; INVALID_ARGUMENT otherwise.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text);

}  // namespace weft

#define WEFT_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define WEFT_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define WEFT_LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define WEFT_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
