// What is logged while it lives, for tests that count lines: it takes the place of the process's
// logger and gives it back at its end. One at a time, on the test's thread.

#pragma once

#include <cstddef>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace weft::test {

class LogLines {
 public:
  LogLines() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("lines", std::move(sink)));
    spdlog::default_logger()->set_pattern("%l %v");
  }
  ~LogLines() { spdlog::set_default_logger(before_); }

  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // Lines that hold `part`; the level stands in front.
  size_t Count(const std::string& part) const {
    size_t lines = 0;
    for (const absl::string_view line : absl::StrSplit(text_.str(), '\n')) {
      if (absl::StrContains(line, part)) ++lines;
    }
    return lines;
  }

 private:
  const std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

}  // namespace weft::test
