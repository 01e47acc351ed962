// Log lines as they reach stderr: JSON that parses, with the fields that the message names, and
// processes that nobody reads.

#include "common/log.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "common/library_log.h"

namespace weft {
namespace {

// What `body` writes to stderr.
std::string Captured(const std::function<void()>& body) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int own = dup(STDERR_FILENO);
  REQUIRE(dup2(fileno(file), STDERR_FILENO) >= 0);
  body();
  FlushLogs();
  REQUIRE(dup2(own, STDERR_FILENO) >= 0);
  close(own);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

std::string JsonLine(const std::string& message) {
  const std::string line = Captured([&] {
    REQUIRE(InitLogging("router", LogFormat::kJson, "info").ok());
    WEFT_LOG_INFO("{}", message);
  });
  REQUIRE(InitLogging("test", LogFormat::kText, "info").ok());
  return line.substr(line.find("\"level\""));
}

TEST_CASE("A JSON line carries the fields that its message names", "[common]") {
  CHECK(JsonLine("shard lost rank=1 epoch=12 why=\"gone\"") ==
        R"("level":"info","process":"router","msg":"shard lost rank=1 epoch=12 why=\"gone\"",)"
        R"("rank":1,"epoch":12})"
        "\n");
  // Ids stay strings; what is no number is quoted; a part of a word is no field.
  CHECK(JsonLine("request_id=007 step=x rank= subrank=2") ==
        R"("level":"info","process":"router","msg":"request_id=007 step=x rank= subrank=2",)"
        R"("step":"x","request_id":"007"})"
        "\n");
  CHECK(JsonLine("two\nlines\t\\") ==
        R"("level":"info","process":"router","msg":"two\u000alines\u0009\\"})"
        "\n");
}

// All of one line in `format`, from its level on.
std::string LineOf(LogFormat format, const std::function<void()>& log) {
  const std::string line = Captured([&] {
    REQUIRE(InitLogging("router", format, "debug").ok());
    log();
  });
  REQUIRE(InitLogging("test", LogFormat::kText, "info").ok());
  const std::string begin = format == LogFormat::kJson ? "\"level\"" : " ";
  return line.substr(line.find(begin));
}

TEST_CASE("What others wrote neither begins a line of text nor reaches a terminal", "[common]") {
  const std::string line = Captured([] {
    REQUIRE(InitLogging("router", LogFormat::kText, "info").ok());
    WEFT_LOG_INFO("unknown key {}", "a\n12:00:00.000 info  router: forged \x1b[31m\x7f\t\xc3\xa9");
  });
  REQUIRE(InitLogging("test", LogFormat::kText, "info").ok());
  CHECK(line.substr(line.find("unknown")) ==
        "unknown key a\\x0a12:00:00.000 info  router: forged \\x1b[31m\\x7f\\x09\xc3\xa9\n");
}

TEST_CASE("Fields are members in JSON and words in text, whatever their text is", "[common]") {
  const std::string hostile = "a b=\"c\"\n\x1b[2J\xff";
  const auto log = [&] {
    LogFields("request", {{"id", "r-1"},
                          {"tokens", 12},
                          {"bytes", uint64_t{1} << 63},
                          {"ms", 1.5},
                          {"stream", true},
                          {"path", hostile},
                          {"empty", ""}});
  };
  CHECK(LineOf(LogFormat::kJson, log) ==
        R"("level":"info","process":"router","msg":"request","id":"r-1","tokens":12,)"
        R"("bytes":9223372036854775808,"ms":1.5,"stream":true,)"
        R"("path":"a b=\"c\"\u000a\u001b[2J\ufffd","empty":""})"
        "\n");
  CHECK(LineOf(LogFormat::kText, log) ==
        R"( info  router: request id=r-1 tokens=12 bytes=9223372036854775808 ms=1.5 stream=true )"
        R"(path="a b=\"c\"\u000a\u001b[2J\ufffd" empty="")"
        "\n");
  // No text can pass for fields that are made already.
  CHECK(LineOf(LogFormat::kJson, [] { WEFT_LOG_INFO("{}", "fields\",\"x\":1"); }) ==
        R"("level":"info","process":"router","msg":"fields\",\"x\":1"})"
        "\n");
}

TEST_CASE("A field that holds a key says its first letters alone", "[common]") {
  const std::string key = "weft-AbCd_fghijklmnopqrstuvwxyz-0123456789ABCDEF";
  REQUIRE(key.size() == 48);
  const auto log = [&] {
    LogFields("request", {{"id", key}, {"other", "Bearer " + key + " " + key + "x"}});
  };
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = LineOf(format, log);
    INFO(line);
    CHECK(line.find("fghij") == std::string::npos);
    CHECK(line.find("Bearer weft-AbCd[...] weft-AbCd[...]\"") != std::string::npos);
  }
  // What is no key stays as it is.
  for (const std::string& text :
       {std::string("weft-chat-17"), key.substr(0, 47), "x" + key.substr(5)}) {
    CHECK(LineOf(LogFormat::kText, [&] {
            LogFields("request", {{"id", text}});
          }).find("id=" + text + "\n") != std::string::npos);
  }
}

TEST_CASE("A library's lines are for debugging, but for its last words", "[common]") {
  const std::string lines = Captured([] {
    REQUIRE(InitLogging("router", LogFormat::kText, "info").ok());
    LogLibraryLine("grpc", "UNKNOWN:No address added out of total 1 {}");
    LogLibraryLine("grpc", "assertion failed: x");
  });
  REQUIRE(InitLogging("test", LogFormat::kText, "info").ok());
  CHECK(lines.find("No address") == std::string::npos);
  CHECK(lines.find("error router: grpc: assertion failed: x\n") != std::string::npos);
}

TEST_CASE("A level is spelt in one way, in flags and in lines", "[common]") {
  for (const LogFormat format : {LogFormat::kJson, LogFormat::kText}) {
    const std::string line = LineOf(format, [] { WEFT_LOG_WARN("x"); });
    CHECK(line.find("warn") != std::string::npos);
    CHECK(line.find("warning") == std::string::npos);
  }
  CHECK(InitLogging("test", LogFormat::kText, "warn").ok());
  for (const char* wrong : {"warning", "critical", "off", "loud", ""}) {
    CHECK(absl::IsInvalidArgument(InitLogging("test", LogFormat::kText, wrong)));
  }
  REQUIRE(InitLogging("test", LogFormat::kText, "info").ok());
}

TEST_CASE("Debug lines cost nothing when they are not logged, and fields little", "[common]") {
  // A descriptor that takes nothing: what is measured is the caller's part alone.
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int own = dup(STDERR_FILENO);
  REQUIRE(dup2(ends[1], STDERR_FILENO) >= 0);
  REQUIRE(InitLogging("router", LogFormat::kJson, "info").ok());
  const auto us_each = [](spdlog::level::level_enum level) {
    constexpr int kLines = 5000;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLines; ++i) {
      LogFields("request",
                {{"id", "0123456789abcdef"},
                 {"route", "/v1/chat/completions"},
                 {"status", 200},
                 {"tokens", i},
                 {"queue_ms", 0.25},
                 {"total_ms", 123.5},
                 {"tenant", "anonymous"}},
                level);
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count() / kLines;
  };
  const double info_us = us_each(spdlog::level::info);
  const double debug_us = us_each(spdlog::level::debug);
  CHECK(LogLinesDropped() > 0);
  REQUIRE(dup2(own, STDERR_FILENO) >= 0);
  REQUIRE(InitLogging("test", LogFormat::kText, "info").ok());
  close(own);
  close(ends[0]);
  close(ends[1]);
  WARN("a line of seven fields: " << info_us << " us; not logged: " << debug_us << " us");
  // Far above what it costs, so that a busy machine does not fail: a wait would take longer.
  CHECK(info_us < 50);
  CHECK(debug_us < 5);
}

}  // namespace
}  // namespace weft
