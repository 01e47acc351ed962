// The file of earlier messages: private, bounded, shared, and no danger to whoever reads it.

#include "deploy/launcher/chat/history.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

using test::TempDir;

unsigned ModeOf(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

TEST_CASE("What is added comes back, with line breaks and backslashes", "[chat]") {
  const TempDir folder;
  const std::string path = folder.path() + "/state/weft/chat_history";
  const History history(path);
  CHECK(history.Load()->empty());
  const std::vector<std::string> entries = {"one", "two\nlines\n", "C:\\new\\\\n", "日本 😀", "\\"};
  for (const std::string& entry : entries) REQUIRE(history.Append(entry).ok());
  CHECK(*history.Load() == entries);
  // The user's alone, also when it was not.
  CHECK(ModeOf(path) == 0600);
  CHECK(ModeOf(folder.path() + "/state/weft") == 0700);
  REQUIRE(chmod(path.c_str(), 0644) == 0);
  REQUIRE(history.Append("six").ok());
  CHECK(ModeOf(path) == 0600);
}

TEST_CASE("The history is bounded in entries and bytes", "[chat]") {
  const TempDir folder;
  const std::string path = folder.path() + "/h";
  const History history(path);
  for (size_t i = 0; i < 2 * History::kEntriesMax + 10; ++i) {
    REQUIRE(history.Append(absl::StrCat("entry ", i)).ok());
  }
  const auto entries = history.Load();
  REQUIRE(entries->size() == History::kEntriesMax);
  CHECK(entries->back() == absl::StrCat("entry ", 2 * History::kEntriesMax + 9));
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK(info.st_size < 40'000);  // it was cut on the way
  // A message of a book is not kept.
  REQUIRE(history.Append(std::string(History::kEntryBytesMax + 1, 'x')).ok());
  CHECK(history.Load()->back() == entries->back());
  // A huge file is read from its end, from a whole line on.
  folder.Write("h", absl::StrCat(std::string(2 * History::kFileBytesMax, 'x'), "\nlast\n"));
  CHECK(*history.Load() == std::vector<std::string>{"last"});
}

TEST_CASE("What is no file is refused by name", "[chat]") {
  const TempDir folder;
  REQUIRE(mkdir((folder.path() + "/d").c_str(), 0700) == 0);
  REQUIRE(mkfifo((folder.path() + "/f").c_str(), 0600) == 0);
  for (const char* name : {"/d", "/f"}) {
    const History history(folder.path() + name);
    CHECK(absl::StrContains(history.Load().status().message(), name));
    CHECK(absl::StrContains(history.Append("x").message(), "--no-history"));
  }
}

TEST_CASE("The history lies where the environment says", "[chat]") {
  setenv("XDG_STATE_HOME", "/s", 1);
  setenv("HOME", "/h", 1);
  CHECK(*History::DefaultPath() == "/s/weft/chat_history");
  setenv("XDG_STATE_HOME", "relative", 1);
  CHECK(*History::DefaultPath() == "/h/.local/state/weft/chat_history");
  unsetenv("XDG_STATE_HOME");
  CHECK(*History::DefaultPath() == "/h/.local/state/weft/chat_history");
  unsetenv("HOME");
  CHECK(absl::IsNotFound(History::DefaultPath().status()));
}

}  // namespace
}  // namespace weft::launcher
