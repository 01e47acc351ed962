// Logging for all processes: spdlog behind four macros, in text or JSON lines on stderr. A line
// carries ts, level, process and msg, and the fields rank, epoch, step, request_id where the caller
// gives them as "key=value" words; LogFields takes fields of any name. Prompts, texts and keys are
// never logged: LogFields cuts what has the form of a key (common/key_form.h). Thread-safe. Nobody
// ever waits for stderr: lines go through a bounded buffer (common/bounded_writer.h), and those
// that do not fit are dropped, counted and spoken of.

#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "absl/types/variant.h"
#include "spdlog/spdlog.h"

namespace weft {

enum class LogFormat { kText, kJson };

// Sets up the default logger. `process` is "router", "shard-0", "weft". `level` is one of trace,
// debug, info, warn, error; INVALID_ARGUMENT otherwise. Call once, first thing in main. What is
// left at exit is written for up to BoundedWriter::kLastFlush.
absl::Status InitLogging(const std::string& process, LogFormat format, const std::string& level);

// "text" or "json"; INVALID_ARGUMENT otherwise.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text);

// A field of a line. Strings are borrowed until LogFields returns; text of any kind is allowed,
// also from outside: it is escaped.
struct LogField {
  template <typename T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
  LogField(absl::string_view field_name, T number) : name(field_name) {
    if constexpr (std::is_same_v<T, bool>) {
      value = number;
    } else if constexpr (std::is_signed_v<T>) {
      value = int64_t{number};
    } else {
      value = uint64_t{number};
    }
  }
  LogField(absl::string_view field_name, double number) : name(field_name), value(number) {}
  LogField(absl::string_view field_name, absl::string_view text) : name(field_name), value(text) {}
  LogField(absl::string_view field_name, const char* text)
      : name(field_name), value(absl::string_view(text)) {}
  LogField(absl::string_view field_name, const std::string& text)
      : name(field_name), value(absl::string_view(text)) {}

  // [a-z0-9_]+, one of our own.
  absl::string_view name;
  absl::variant<bool, int64_t, uint64_t, double, absl::string_view> value;
};

// Logs `message` with fields: "message id=r-1 tokens=12" in text, members beside "msg" in JSON. For
// example LogFields("request", {{"id", id}, {"tokens", 12}}). Costs about 1.5 us for seven fields,
// and next to nothing when `level` is not logged.
void LogFields(absl::string_view message, absl::Span<const LogField> fields,
               spdlog::level::level_enum level = spdlog::level::info);

// `bytes` to stderr as they are, in order with the lines of the log: whole lines of a child, or a
// progress bar.
void LogRaw(absl::string_view bytes);
// One line to stdout, for scripts and for the process that started this one. Never waits either.
void PrintLine(absl::string_view line);

// Waits until what was logged and printed so far is out, at most BoundedWriter::kLastFlush. Before
// _Exit; a return from main does it by itself.
void FlushLogs();
// A line without a pattern, and FlushLogs: what a process says when it ends, also before
// InitLogging.
void LogLastWords(absl::string_view line);

// Lines that were dropped so far because stderr did not take them.
uint64_t LogLinesDropped();

}  // namespace weft

#define WEFT_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define WEFT_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define WEFT_LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define WEFT_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
