// Which lines of a child say why it ends.

#include "deploy/launcher/last_words.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

TEST_CASE("A child's reason is found in its last words and in errors of its log", "[launcher]") {
  CHECK(LastWords("weft-shard: --kv-memory 1024 bytes hold no KV block") ==
        "--kv-memory 1024 bytes hold no KV block");
  CHECK(LastWords("weft-router: --http-port: taken") == "--http-port: taken");
  CHECK(LastWords("04:13:01.123 error router: --api-keys: k.json: No such file or directory") ==
        "--api-keys: k.json: No such file or directory");
  CHECK(LastWords(
            R"({"ts":"x","level":"error","process":"router","msg":"--model: \"x\" is none"})") ==
        "--model: \"x\" is none");
}

TEST_CASE("Other lines of a child are no reason", "[launcher]") {
  for (const char* line :
       {"", "loading 1 2 3", "04:13:01.123 warn  router: waits", "04:13:01.123 info  shard-0: x",
        "an error of: a library", R"({"level":"warn","msg":"waits"})", R"({"level":"error"})",
        R"({"level":"error","msg":7})", "{", "{}", "[1]"}) {
    INFO(line);
    CHECK(LastWords(line).empty());
  }
}

TEST_CASE("Only what is an object of JSON stands in a JSON log as it came", "[launcher]") {
  CHECK(IsJsonObject(R"({"ts":"1","level":"info","msg":"x"})"));
  for (const char* line : {"", "x", "{", "{rubbish}", "{\"msg\":\"\xff\"}", "[1]", "{} and more"}) {
    INFO(line);
    CHECK_FALSE(IsJsonObject(line));
  }
}

TEST_CASE("A reason is cut to what the router takes in a line", "[launcher]") {
  const std::string long_line = absl::StrCat("weft-shard: ", std::string(5000, 'x'));
  CHECK(LastWords(long_line) == std::string(kLastWordsBytesMax, 'x'));
}

}  // namespace
}  // namespace weft::launcher
