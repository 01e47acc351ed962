// weft convert as it is typed: flags and exit codes.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "deploy/launcher/commands.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

int Run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "convert");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return RunConvert(static_cast<int>(argv.size()), argv.data());
}

TEST_CASE("weft convert takes its directory by flag or by place", "[deploy][convert]") {
  const std::string parts = absl::StrCat(WEFT_CONVERT_TEST_DIR, "/checkpoints/parts");
  const test::TempDir folder;
  const std::string by_flag = folder.path() + "/a";
  const std::string by_place = folder.path() + "/b";
  CHECK(Run({"--from", parts, "--to", by_flag}) == kExitOk);
  CHECK(Run({parts, "--to", by_place, "--part-size", "1MiB"}) == kExitOk);
  CHECK(test::ReadFile(by_flag + "/model.safetensors") ==
        test::ReadFile(by_place + "/model.safetensors"));
  // It is there already.
  CHECK(Run({"--from", parts, "--to", by_flag}) == kExitStartup);
  CHECK(Run({"--help"}) == kExitOk);
}

TEST_CASE("weft convert refuses flags that are out of range or mistyped", "[deploy][convert]") {
  const std::string parts = absl::StrCat(WEFT_CONVERT_TEST_DIR, "/checkpoints/parts");
  const test::TempDir folder;
  const std::string to = folder.path() + "/out";
  CHECK(Run({}) == kExitStartup);
  for (const char* size : {"0", "1MB", "1023KiB", "2000GiB", "-5GiB", "many", ""}) {
    INFO(size);
    CHECK(Run({"--from", parts, "--to", to, absl::StrCat("--part-size=", size)}) == kExitStartup);
  }
  CHECK(Run({"--form", parts, "--to", to}) == kExitStartup);
  CHECK(!std::filesystem::exists(to));
}

}  // namespace
}  // namespace weft::launcher
