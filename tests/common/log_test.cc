// Log lines as they reach stderr: JSON that parses, with the fields that the message names.

#include "common/log.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <string>

namespace weft {
namespace {

// What `body` writes to stderr.
std::string Captured(const std::function<void()>& body) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int own = dup(STDERR_FILENO);
  REQUIRE(dup2(fileno(file), STDERR_FILENO) >= 0);
  body();
  std::fflush(stderr);
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

}  // namespace
}  // namespace weft
