#include "common/log.h"

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_color_sinks.h"

namespace weft {
namespace {

void AppendEscaped(absl::string_view text, spdlog::memory_buf_t* dest) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      dest->push_back('\\');
      dest->push_back(c);
    } else if (byte < 0x20) {
      const char escape[] = {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
      dest->append(escape, escape + sizeof(escape));
    } else {
      dest->push_back(c);
    }
  }
}

// The value of the word "key=value"; empty when there is none.
absl::string_view ValueOf(absl::string_view message, absl::string_view key) {
  for (absl::string_view word : absl::StrSplit(message, ' ')) {
    if (absl::ConsumePrefix(&word, key) && absl::ConsumePrefix(&word, "=")) return word;
  }
  return {};
}

void Append(absl::string_view text, spdlog::memory_buf_t* dest) {
  dest->append(text.data(), text.data() + text.size());
}

// %* in a pattern: the message as a JSON string, and the fields that it names.
class JsonMessageFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& msg, const std::tm&,
              spdlog::memory_buf_t& dest) override {
    const absl::string_view message(msg.payload.data(), msg.payload.size());
    dest.push_back('"');
    AppendEscaped(message, &dest);
    dest.push_back('"');
    for (const absl::string_view key : {"rank", "epoch", "step", "request_id"}) {
      const absl::string_view value = ValueOf(message, key);
      if (value.empty()) continue;
      // An id of digits stays a string.
      const bool number = key != "request_id" && value.size() < 16 &&
                          std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
      Append(absl::StrCat(",\"", key, "\":", number ? "" : "\""), &dest);
      AppendEscaped(value, &dest);
      if (!number) dest.push_back('"');
    }
  }

  std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<JsonMessageFlag>();
  }
};

}  // namespace

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("--log-format: \"", text, "\" is not one of text, json"));
}

absl::Status InitLogging(const std::string& process, LogFormat format, const std::string& level) {
  const auto parsed = spdlog::level::from_str(level == "warn" ? "warning" : level);
  if (parsed == spdlog::level::off) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-level: \"", level, "\" is not one of trace, debug, info, warn, error"));
  }
  auto logger = std::make_shared<spdlog::logger>(
      process, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  if (format == LogFormat::kJson) {
    formatter->add_flag<JsonMessageFlag>('*').set_pattern(
        R"({"ts":"%Y-%m-%dT%H:%M:%S.%f%z","level":"%l","process":"%n","msg":%*})");
  } else {
    formatter->set_pattern("%H:%M:%S.%e %^%-5l%$ %n: %v");
  }
  logger->set_formatter(std::move(formatter));
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace weft
