// Run directories: private, short enough, and gone with their owner, however that ended.

#include "deploy/launcher/run_dir.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

namespace fs = std::filesystem;

size_t EntriesOf(const std::string& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

// A folder as a launcher leaves it that was killed: with sockets and a lock that nobody holds.
std::string LeaveDead(const std::string& parent) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    auto dir = RunDir::Create({parent});
    std::ofstream((*dir)->path() + "/shard-0.sock") << "";
    std::ofstream((*dir)->path() + "/supervisor.sock") << "";
    (void)!write(ends[1], (*dir)->path().data(), (*dir)->path().size());
    kill(getpid(), SIGKILL);
  }
  close(ends[1]);
  char path[256];
  const ssize_t bytes = read(ends[0], path, sizeof(path));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  REQUIRE(bytes > 0);
  return std::string(path, static_cast<size_t>(bytes));
}

TEST_CASE("A run directory is its owner's alone and goes with it", "[launcher]") {
  const test::TempDir parent;
  std::string path;
  {
    const auto dir = RunDir::Create({parent.path()});
    REQUIRE(dir.ok());
    path = (*dir)->path();
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0700);
    std::ofstream(path + "/shard-0.sock") << "";
  }
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("What a killed launcher left is removed, what a living one has is not", "[launcher]") {
  const test::TempDir parent;
  const auto living = RunDir::Create({parent.path()});
  REQUIRE(living.ok());
  const std::string dead = LeaveDead(parent.path());
  REQUIRE(fs::exists(dead + "/supervisor.sock"));
  const auto next = RunDir::Create({parent.path()});
  REQUIRE(next.ok());
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists((*living)->path() + "/lock"));
  CHECK(fs::exists((*next)->path() + "/lock"));
}

TEST_CASE("What is not known to be a run directory is left alone", "[launcher]") {
  const test::TempDir parent;
  // Another's name; a name of ours without a lock; a lock beside files of somebody.
  for (const char* folder : {"weft-tests-a", "weft-12345", "weft-abc123", "weft-abc124"}) {
    fs::create_directory(parent.path() + "/" + folder);
    parent.Write(absl::StrCat(folder, "/file"), "kept");
  }
  parent.Write("weft-abc124/lock", "");
  const test::TempDir elsewhere;
  elsewhere.Write("lock", "");
  elsewhere.Write("x.sock", "");
  fs::create_directory_symlink(elsewhere.path(), parent.path() + "/weft-link01");
  const auto dir = RunDir::Create({parent.path()});
  REQUIRE(dir.ok());
  for (const char* folder : {"weft-tests-a", "weft-12345", "weft-abc123", "weft-abc124"}) {
    INFO(folder);
    CHECK(fs::exists(absl::StrCat(parent.path(), "/", folder, "/file")));
  }
  CHECK(fs::exists(elsewhere.path() + "/x.sock"));
}

TEST_CASE("A parent that does not serve is passed over, and the last one says why", "[launcher]") {
  const test::TempDir parent;
  const std::string name(RunDir::kSocketPathBytesMax, 'x');
  const std::string too_long = parent.path() + "/" + name;
  fs::create_directory(too_long);
  const std::string missing = parent.path() + "/missing";
  const auto dir = RunDir::Create({too_long, missing, parent.path()});
  REQUIRE(dir.ok());
  CHECK(absl::StartsWith((*dir)->path(), parent.path() + "/weft-"));
  CHECK((*dir)->path().size() + std::string("/supervisor.sock").size() <
        RunDir::kSocketPathBytesMax);
  CHECK(EntriesOf(too_long) == 0);

  const absl::Status none = RunDir::Create({too_long, missing}).status();
  CHECK(absl::IsUnavailable(none));
  CHECK(absl::StrContains(none.message(), "too long"));
  CHECK(absl::StrContains(none.message(), missing + ": No such file or directory"));
  CHECK(absl::StrContains(none.message(), "XDG_RUNTIME_DIR"));
}

}  // namespace
}  // namespace weft::launcher
