#include "common/small_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"

namespace weft {
namespace {

unsigned Mode(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777u;
}

TEST_CASE("A small file is read whole up to its bound and not beyond", "[common][small_file]") {
  const test::TempDir folder;
  const std::string path = folder.Write("f", std::string(40000, 'x'));
  REQUIRE(ReadSmallFile(path, 40000).ok());
  CHECK(ReadSmallFile(path, 40000)->size() == 40000);
  const auto longer = ReadSmallFile(path, 39999);
  CHECK(longer.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StartsWith(longer.status().message(), path));
  CHECK(ReadSmallFile(folder.Write("empty", ""), 10).value().empty());
}

TEST_CASE("What is no regular file is refused at once", "[common][small_file]") {
  const test::TempDir folder;
  const std::string fifo = folder.path() + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path : {fifo, folder.path(), std::string("/dev/zero")}) {
    const auto read = ReadSmallFile(path, 1000);
    CHECK(read.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(read.status().message(), "regular file"));
  }
  const auto missing = ReadSmallFile(folder.path() + "/none", 1000);
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
  CHECK(missing.status().message() == folder.path() +
                                          "/none: No such file or directory; put one "
                                          "there, or name another file");
}

TEST_CASE("A file is replaced in one piece and keeps its mode", "[common][small_file]") {
  const test::TempDir folder;
  const std::string path = folder.path() + "/keys.json";
  REQUIRE(WriteFileAtomically(path, "one").ok());
  CHECK(Mode(path) == 0600);
  REQUIRE(chmod(path.c_str(), 0640) == 0);
  REQUIRE(WriteFileAtomically(path, "two").ok());
  CHECK(test::ReadFile(path) == "two");
  CHECK(Mode(path) == 0640);
  const std::string link = folder.path() + "/link.json";
  REQUIRE(symlink("keys.json", link.c_str()) == 0);
  REQUIRE(WriteFileAtomically(link, "three").ok());
  CHECK(std::filesystem::is_symlink(link));
  CHECK(test::ReadFile(path) == "three");
  // No temporary file stays, also when the write fails.
  CHECK_FALSE(WriteFileAtomically(folder.path() + "/none/keys.json", "x").ok());
  CHECK_FALSE(WriteFileAtomically(folder.path(), "x").ok());
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++files;
  }
  CHECK(files == 2);
}

}  // namespace
}  // namespace weft
