#include "common/log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/bounded_writer.h"
#include "common/check.h"
#include "common/key_form.h"
#include "common/log_level.h"
#include "common/status.h"
#include "common/utf8.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"

namespace weft {
namespace {

using spdlog::level::level_enum;
using Buffer = spdlog::memory_buf_t;

// About ten thousand lines.
constexpr size_t kWaitingBytesMax = 1u << 20;
constexpr size_t kPrintedBytesMax = 64u << 10;

// One spelling of each level: in flags, in text and in JSON.
constexpr absl::string_view kLevelNames[] = {"trace", "debug", "info", "warn", "error"};

absl::string_view LevelName(level_enum level) {
  return kLevelNames[std::min<size_t>(static_cast<size_t>(level), std::size(kLevelNames) - 1)];
}

void Append(absl::string_view text, Buffer* dest) {
  dest->append(text.data(), text.data() + text.size());
}

constexpr char kHex[] = "0123456789abcdef";

// The inside of a JSON string. What is not UTF-8 becomes U+FFFD.
void AppendEscaped(absl::string_view text, Buffer* dest) {
  while (!text.empty()) {
    const unsigned char byte = static_cast<unsigned char>(text[0]);
    const size_t bytes = Utf8CharacterBytes(text);
    if (byte == '"' || byte == '\\') {
      dest->push_back('\\');
      dest->push_back(text[0]);
    } else if (byte < 0x20 || byte == 0x7f) {
      const char escape[] = {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
      dest->append(escape, escape + sizeof(escape));
    } else if (bytes == 0) {
      Append("\\ufffd", dest);
    } else {
      Append(text.substr(0, bytes), dest);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
}

void AppendQuoted(absl::string_view text, Buffer* dest) {
  dest->push_back('"');
  AppendEscaped(text, dest);
  dest->push_back('"');
}

// The value of the word "key=value"; empty when there is none.
absl::string_view ValueOf(absl::string_view message, absl::string_view key) {
  for (absl::string_view word : absl::StrSplit(message, ' ')) {
    if (absl::ConsumePrefix(&word, key) && absl::ConsumePrefix(&word, "=")) return word;
  }
  return {};
}

// A message that LogFields made carries this in its source location, which no text can forge: in
// JSON it then is `"message","key":value ...` already.
constexpr char kReadyMade[] = "fields";

// %* in a pattern: the message as a JSON string, and its fields.
class JsonMessageFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& msg, const std::tm&, Buffer& dest) override {
    const absl::string_view message(msg.payload.data(), msg.payload.size());
    if (msg.source.filename == kReadyMade) {
      Append(message, &dest);
      return;
    }
    AppendQuoted(message, &dest);
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

// %* in a pattern: the message as text. Of what others wrote in it a terminal sees no control
// character, and no line end begins a line that nobody logged.
class TextMessageFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& msg, const std::tm&, Buffer& dest) override {
    for (const char c : absl::string_view(msg.payload.data(), msg.payload.size())) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7f) {
        const char escape[] = {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
        dest.append(escape, escape + sizeof(escape));
      } else {
        dest.push_back(c);
      }
    }
  }

  std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<TextMessageFlag>();
  }
};

// %& in a pattern: the level's name, in text as wide as the widest.
class LevelFlag : public spdlog::custom_flag_formatter {
 public:
  explicit LevelFlag(bool pad) : pad_(pad) {}

  void format(const spdlog::details::log_msg& msg, const std::tm&, Buffer& dest) override {
    const absl::string_view name = LevelName(msg.level);
    Append(name, &dest);
    for (size_t i = name.size(); pad_ && i < 5; ++i) dest.push_back(' ');
  }

  std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<LevelFlag>(pad_);
  }

 private:
  const bool pad_;
};

std::unique_ptr<spdlog::formatter> MakeFormatter(LogFormat format) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelFlag>('&', format == LogFormat::kText);
  if (format == LogFormat::kJson) {
    formatter->add_flag<JsonMessageFlag>('*').set_pattern(
        R"({"ts":"%Y-%m-%dT%H:%M:%S.%f%z","level":"%&","process":"%n","msg":%*})");
  } else {
    formatter->add_flag<TextMessageFlag>('*').set_pattern("%H:%M:%S.%e %^%&%$ %n: %*");
  }
  return formatter;
}

// Formats on the caller's thread and hands over to the writer.
class Sink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  Sink(const std::string& process, LogFormat format)
      : format_(format),
        colours_(isatty(STDERR_FILENO) != 0),
        writer_(STDERR_FILENO, kWaitingBytesMax,
                [process, formatter = MakeFormatter(format)](uint64_t lines) {
                  const std::string text = absl::StrCat(lines, " log lines dropped");
                  Buffer line;
                  formatter->format({process, spdlog::level::warn, text}, line);
                  return std::string(line.data(), line.size());
                }) {
    set_formatter_(MakeFormatter(format));
  }

  LogFormat format() const { return format_; }
  BoundedWriter& writer() { return writer_; }
  BoundedWriter& printer() {
    std::lock_guard<std::mutex> lock(printer_mutex_);
    if (printer_ == nullptr) {
      printer_ = std::make_unique<BoundedWriter>(STDOUT_FILENO, kPrintedBytesMax, nullptr);
    }
    return *printer_;
  }

  void FlushAll() {
    writer_.Flush(BoundedWriter::kLastFlush);
    BoundedWriter* printer = nullptr;
    {
      std::lock_guard<std::mutex> lock(printer_mutex_);
      printer = printer_.get();
    }
    if (printer != nullptr) printer->Flush(BoundedWriter::kLastFlush);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    Buffer line;
    formatter_->format(msg, line);
    if (colours_) Colour(msg, &line);
    writer_.Push({line.data(), line.size()}, msg.level >= spdlog::level::warn);
  }
  // Called under the lock that every line takes, so nothing may wait here: FlushLogs does it.
  void flush_() override {}

 private:
  static void Colour(const spdlog::details::log_msg& msg, Buffer* line) {
    static constexpr absl::string_view kColours[] = {"\033[37m", "\033[36m", "\033[32m",
                                                     "\033[33m\033[1m", "\033[31m\033[1m"};
    const size_t level = std::min<size_t>(static_cast<size_t>(msg.level), std::size(kColours) - 1);
    const absl::string_view plain(line->data(), line->size());
    const std::string text = absl::StrCat(
        plain.substr(0, msg.color_range_start), kColours[level],
        plain.substr(msg.color_range_start, msg.color_range_end - msg.color_range_start), "\033[m",
        plain.substr(msg.color_range_end));
    line->clear();
    Append(text, line);
  }

  const LogFormat format_;
  const bool colours_;
  BoundedWriter writer_;
  // For PrintLine; made when it is first called, then there until the end.
  std::mutex printer_mutex_;
  std::unique_ptr<BoundedWriter> printer_;
};

// The sink that InitLogging made; null before it was called.
Sink* CurrentSink() {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  if (logger == nullptr || logger->sinks().empty()) return nullptr;
  return dynamic_cast<Sink*>(logger->sinks().front().get());
}

bool NeedsQuotes(absl::string_view text) {
  return text.empty() || std::any_of(text.begin(), text.end(), [](char c) {
           const unsigned char byte = static_cast<unsigned char>(c);
           return byte <= ' ' || byte >= 0x7f || c == '"' || c == '\\' || c == '=';
         });
}

struct ValueAppender {
  Buffer* dest;
  bool json;

  void operator()(bool value) const { Append(value ? "true" : "false", dest); }
  void operator()(int64_t value) const { Append(absl::AlphaNum(value).Piece(), dest); }
  void operator()(uint64_t value) const { Append(absl::AlphaNum(value).Piece(), dest); }
  void operator()(double value) const {
    // JSON knows neither infinity nor NaN.
    if (json && !std::isfinite(value)) return Append("null", dest);
    Append(absl::AlphaNum(value).Piece(), dest);
  }
  void operator()(absl::string_view value) const {
    if (HoldsKey(value)) {
      const std::string cut = WithoutKeys(value);
      return AppendText(cut);
    }
    AppendText(value);
  }

  void AppendText(absl::string_view value) const {
    if (json || NeedsQuotes(value)) return AppendQuoted(value, dest);
    Append(value, dest);
  }
};

}  // namespace

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("--log-format: \"", text, "\" is not one of text, json"));
}

absl::StatusOr<level_enum> ParseLogLevel(absl::string_view text) {
  const auto name = std::find(std::begin(kLevelNames), std::end(kLevelNames), text);
  if (name != std::end(kLevelNames)) return static_cast<level_enum>(name - std::begin(kLevelNames));
  return absl::InvalidArgumentError(
      absl::StrCat("--log-level: \"", text, "\" is not one of trace, debug, info, warn, error"));
}

void ChangeLogLevel(level_enum level, const std::string& news) {
  const std::shared_ptr<spdlog::logger> logger = spdlog::default_logger();
  logger->set_level(std::min({logger->level(), level, level_enum::info}));
  logger->info("{}", news);
  logger->set_level(level);
}

absl::Status InitLogging(const std::string& process, LogFormat format, const std::string& level) {
  internal::SetLastWords([](const std::string& line) { LogLastWords(line); });
  WEFT_ASSIGN_OR_RETURN(const level_enum parsed, ParseLogLevel(level));
  auto logger = std::make_shared<spdlog::logger>(process, std::make_shared<Sink>(process, format));
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void LogFields(absl::string_view message, absl::Span<const LogField> fields, level_enum level) {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  if (!logger->should_log(level)) return;
  const Sink* const sink = CurrentSink();
  const bool json = sink != nullptr && sink->format() == LogFormat::kJson;
  Buffer text;
  if (json) {
    AppendQuoted(message, &text);
  } else {
    Append(message, &text);
  }
  for (const LogField& field : fields) {
    Append(json ? ",\"" : " ", &text);
    Append(field.name, &text);
    Append(json ? "\":" : "=", &text);
    absl::visit(ValueAppender{&text, json}, field.value);
  }
  logger->log(spdlog::source_loc{kReadyMade, 1, ""}, level,
              spdlog::string_view_t(text.data(), text.size()));
}

void LogRaw(absl::string_view bytes) {
  if (Sink* const sink = CurrentSink()) {
    sink->writer().Push(bytes, /*urgent=*/false);
  } else {
    WriteWithin(STDERR_FILENO, bytes, BoundedWriter::kLastFlush);
  }
}

void PrintLine(absl::string_view line) {
  const std::string whole = absl::StrCat(line, "\n");
  if (Sink* const sink = CurrentSink()) {
    sink->printer().Push(whole, /*urgent=*/true);
  } else {
    WriteWithin(STDOUT_FILENO, whole, BoundedWriter::kLastFlush);
  }
}

void FlushLogs() {
  if (Sink* const sink = CurrentSink()) sink->FlushAll();
}

void LogLastWords(absl::string_view line) {
  const std::string whole = absl::StrCat(line, "\n");
  LogRaw(whole);
  FlushLogs();
}

uint64_t LogLinesDropped() {
  Sink* const sink = CurrentSink();
  return sink != nullptr ? sink->writer().dropped_lines() : 0;
}

}  // namespace weft
