#include "router/doors/identity/file_watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/synchronization/mutex.h"
#include "tests/common/temp_dir.h"

namespace weft::router {
namespace {

// A time at which files written by the test are old.
absl::Time Later() { return absl::Now() + absl::Hours(1); }

TEST_CASE("A look reports the first time, each change once, and otherwise nothing",
          "[router][identity]") {
  const test::TempDir folder;
  const std::string one = folder.Write("one", "1");
  const std::string two = folder.path() + "/two";
  FileChanges changes({one, two}, Later);
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
  folder.Write("one", "12");
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
  folder.Write("two", "");
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
  std::filesystem::remove(one);
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
}

TEST_CASE("A file written just now is reported once more", "[router][identity]") {
  const test::TempDir folder;
  const std::string path = folder.Write("keys", "1");
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  const absl::Time written = absl::TimeFromTimespec(info.st_mtim);
  FileChanges changes({path}, [written] { return written + absl::Milliseconds(3); });
  CHECK(changes.Look());
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
}

TEST_CASE("A moved symbolic link two steps away is noticed, as Kubernetes moves them",
          "[router][identity]") {
  const test::TempDir folder;
  const std::string& base = folder.path();
  for (const char* const version : {"/v1", "/v2"}) {
    std::filesystem::create_directory(base + version);
    folder.Write(std::string(version + 1) + "/keys.json", "same bytes");
  }
  REQUIRE(symlink("v1", (base + "/..data").c_str()) == 0);
  REQUIRE(symlink("..data/keys.json", (base + "/keys.json").c_str()) == 0);
  FileChanges changes({base + "/keys.json"}, Later);
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
  REQUIRE(symlink("v2", (base + "/..data_tmp").c_str()) == 0);
  std::filesystem::rename(base + "/..data_tmp", base + "/..data");
  CHECK(changes.Look());
  CHECK_FALSE(changes.Look());
}

TEST_CASE("The watch calls after a change and at each look, and ends at once",
          "[router][identity]") {
  const test::TempDir folder;
  const std::string path = folder.Write("keys", "1");
  absl::Mutex mutex;
  int calls = 0;
  int looks = 0;
  const auto wait = [&mutex](int* count, int least) {
    absl::MutexLock lock(&mutex);
    const auto reached = [count, least] { return *count >= least; };
    return mutex.AwaitWithTimeout(absl::Condition(&reached), absl::Seconds(30));
  };
  const auto count = [&mutex](int* counter) {
    return [&mutex, counter] {
      absl::MutexLock lock(&mutex);
      ++*counter;
    };
  };
  const auto forget = [&mutex, &calls] {
    absl::MutexLock lock(&mutex);
    calls = 0;
  };
  {
    FileWatch watch;
    watch.Add({path}, count(&calls), count(&looks));
    watch.Start();
    REQUIRE(wait(&calls, 1));
    // The file may be young enough to be reported twice.
    REQUIRE(wait(&looks, 3));
    forget();
    folder.Write("keys", "12");
    REQUIRE(wait(&calls, 1));
  }
  CHECK(looks >= 3);
}

}  // namespace
}  // namespace weft::router
