// weft replay as it is typed: what it takes, and its exit codes. What it compares is asked by
// tests/router/recording.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "common/exit_code.h"
#include "deploy/launcher/commands.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

int Run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "replay");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return RunReplay(static_cast<int>(argv.size()), argv.data());
}

TEST_CASE("weft replay says by its exit code whether a recording is played to its end",
          "[deploy][recording]") {
  const std::string recorded = std::string(WEFT_RECORDINGS_DIR) + "/demo";
  CHECK(Run({recorded}) == kExitOk);
  CHECK(Run({"--from", recorded + ".1"}) == kExitOk);
  CHECK(Run({"--help"}) == kExitOk);
  CHECK(Run({}) == kExitStartup);
  CHECK(Run({recorded + "-of-nobody"}) == kExitStartup);
  const test::TempDir dir;
  const std::string bytes = test::ReadFile(recorded + ".1");
  CHECK(Run({dir.Write("cut.1", bytes.substr(0, bytes.size() - 1))}) == kExitStartup);
  CHECK(Run({dir.Write("text.1", "a text")}) == kExitStartup);
}

}  // namespace
}  // namespace weft::launcher
