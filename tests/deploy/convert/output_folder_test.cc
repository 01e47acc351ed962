// A folder of files that appear together or not at all.

#include "deploy/convert/output_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"

namespace weft::convert {
namespace {

std::set<std::string> FilesIn(const std::string& path) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST_CASE("Files have their names once all of them are whole", "[deploy][convert]") {
  const test::TempDir dir;
  const std::string path = dir.path() + "/out";
  auto folder = OutputFolder::Open(path);
  REQUIRE(folder.ok());
  for (const char* name : {"a", "b"}) REQUIRE(folder->Add(name, name).ok());
  for (const std::string& name : FilesIn(path)) CHECK(absl::StartsWith(name, "."));
  REQUIRE(folder->Commit().ok());
  CHECK(FilesIn(path) == std::set<std::string>{"a", "b"});
  CHECK(test::ReadFile(path + "/b") == "b");
}

TEST_CASE("When one file cannot have its name, those before it lose theirs", "[deploy][convert]") {
  const test::TempDir dir;
  const std::string path = dir.path() + "/out";
  {
    auto folder = OutputFolder::Open(path);
    REQUIRE(folder.ok());
    for (const char* name : {"a", "b", "c"}) REQUIRE(folder->Add(name, name).ok());
    // Somebody was faster.
    REQUIRE(std::filesystem::create_directory(path + "/c"));
    CHECK_FALSE(folder->Commit().ok());
    CHECK(FilesIn(path).count("a") == 0);
    CHECK(FilesIn(path).count("b") == 0);
  }
  CHECK(FilesIn(path) == std::set<std::string>{"c"});
}

}  // namespace
}  // namespace weft::convert
