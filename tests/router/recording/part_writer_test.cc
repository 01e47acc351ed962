// Recordings on disks that are full, slow or small: what they leave behind is whole and bounded,
// and the scheduler's thread never hears of them.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/recording/bounds.h"
#include "router/recording/parts.h"
#include "tests/common/temp_dir.h"
#include "tests/router/recording/recorded_world.h"

namespace weft::router {
namespace {

using recording::FindParts;
using recording::Part;
using recording::RecordOptions;
using recording::Replay;
using recording::ReplayReport;

TEST_CASE("Parts go when all would pass the limit, and the rest is played again", "[recording]") {
  test::TempDir dir;
  RecordOptions options = UnhurriedOptions(dir.path() + "/rec");
  options.part_bytes = 10'000;
  options.bytes_max = 120'000;
  const RecordedWorld world = RecordWorld(7, 1000, /*kv_windows=*/false, options);
  CHECK(!world.ended);
  const auto parts = FindParts(options.path);
  REQUIRE(parts.ok());
  uint64_t bytes = 0;
  for (const Part& part : *parts) bytes += part.bytes;
  CHECK(bytes <= options.bytes_max);
  CHECK(bytes > options.bytes_max / 2);
  CHECK(parts->front().number > 1);
  ReplayReport report;
  REQUIRE(Replay(options.path, &report) == absl::OkStatus());
  CHECK(report.difference == "");
  CHECK(report.first_event > 0);
  CHECK(report.complete);
}

TEST_CASE("The next process goes on behind the parts that are there", "[recording]") {
  test::TempDir dir;
  const RecordOptions options = UnhurriedOptions(dir.path() + "/rec");
  RecordWorld(1, 50, false, options);
  const std::string first = test::ReadFile(options.path + ".1");
  RecordWorld(2, 50, false, options);
  CHECK(test::ReadFile(options.path + ".1") == first);
  ReplayReport report;
  REQUIRE(Replay(options.path, &report) == absl::OkStatus());
  CHECK(report.recordings == 2);
  CHECK(report.difference == "");
  // One that never served leaves no second part.
  for (int i = 0; i < 3; ++i) REQUIRE(Recorder::Create(options, 3).ok());
  CHECK(FindParts(options.path)->size() == 3);
  RecordWorld(3, 50, false, options);
  REQUIRE(Replay(options.path, &report) == absl::OkStatus());
  CHECK(report.recordings == 3);
}

TEST_CASE("However often a router starts, it keeps so many parts and no more", "[recording]") {
  test::TempDir dir;
  const RecordOptions options = UnhurriedOptions(dir.path() + "/rec");
  constexpr uint64_t kThere = recording::kPartsMax + 5;
  for (uint64_t number = 1; number <= kThere; ++number) {
    dir.Write(absl::StrCat("rec.", number), recording::PartMagic() + "frames");
  }
  REQUIRE(Recorder::Create(options, 1).ok());
  const auto parts = FindParts(options.path);
  REQUIRE(parts.ok());
  REQUIRE(parts->size() == recording::kPartsMax);
  CHECK(parts->front().number == kThere + 2 - recording::kPartsMax);
  CHECK(parts->back().number == kThere + 1);
}

TEST_CASE("A limit below one part ends the recording, and what is there is whole", "[recording]") {
  test::TempDir dir;
  RecordOptions options = UnhurriedOptions(dir.path() + "/rec");
  options.part_bytes = uint64_t{1} << 30;
  options.bytes_max = 600'000;
  const RecordedWorld world = RecordWorld(7, 4000, false, options);
  ReplayReport report;
  REQUIRE(Replay(options.path, &report) == absl::OkStatus());
  CHECK(report.difference == "");
  CHECK(!report.complete);
  CHECK(report.plans > 0);
  CHECK(report.plans < world.report.steps);
  CHECK(std::filesystem::file_size(options.path + ".1") <= options.bytes_max);
}

TEST_CASE("A full disk ends the recording and nothing else", "[recording]") {
  test::TempDir dir;
  RecordOptions options = UnhurriedOptions(dir.path() + "/rec");
  SECTION("from the second part on") {
    options.part_bytes = 20'000;
    options.create_part = [](const std::string& path) {
      return absl::EndsWith(path, ".1") ? recording::CreatePart(path)
                                        : open("/dev/full", O_WRONLY | O_CLOEXEC);
    };
    const RecordedWorld world = RecordWorld(3, 600, false, options);
    // Every request ended as it would have without.
    CHECK(world.report.ended_by_length + world.report.ended_by_eos + world.report.cancelled +
              world.report.poisoned + world.report.unlucky ==
          600);
    ReplayReport report;
    REQUIRE(Replay(options.path, &report) == absl::OkStatus());
    CHECK(report.difference == "");
    CHECK(!report.complete);
  }
  SECTION("that takes a part of what is written") {
    options.part_bytes = 20'000;
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const rlimit small = {10'001, limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const RecordedWorld world = RecordWorld(3, 600, false, options, /*awaits_end=*/true);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    signal(SIGXFSZ, handler);
    CHECK(world.ended);
    // Nothing is left of what it did not take whole.
    ReplayReport report;
    REQUIRE(Replay(options.path, &report) == absl::OkStatus());
    CHECK(report.recordings == 1);
    CHECK(!report.complete);
  }
  SECTION("at the start, where it is an error that names the file") {
    options.create_part = [](const std::string&) {
      return open("/dev/full", O_WRONLY | O_CLOEXEC);
    };
    const auto recorder = Recorder::Create(options, 1);
    REQUIRE(!recorder.ok());
    CHECK(absl::StrContains(recorder.status().message(),
                            absl::StrCat("cannot write ", options.path, ".1")));
  }
  SECTION("in a directory that is not there") {
    options.path = dir.path() + "/nowhere/rec";
    const auto recorder = Recorder::Create(options, 1);
    REQUIRE(!recorder.ok());
    CHECK(absl::StrContains(recorder.status().message(), "nowhere"));
  }
}

TEST_CASE("A disk that takes nothing costs bounded memory and no waiting", "[recording]") {
  signal(SIGPIPE, SIG_IGN);
  test::TempDir dir;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  RecordOptions options = UnhurriedOptions(dir.path() + "/rec");
  options.pending_bytes_max = 1u << 20;
  options.create_part = [&pipe_ends](const std::string&) { return dup(pipe_ends[1]); };
  auto recorder = Recorder::Create(options, 1);
  REQUIRE(recorder.ok());
  SimulationOptions simulation;
  simulation.requests = 20'000;
  simulation.worlds = 1;
  simulation.check_invariants = false;
  simulation.on_scheduler = [&recorder](const SchedulerConfig& config, Scheduler* scheduler) {
    (*recorder)->Begin(config, scheduler);
  };
  // Nobody reads the pipe: a wait for it would never end.
  RunSimulation(simulation);
  CHECK((*recorder)->ended());
  // The thread's own write ends with its reader.
  close(pipe_ends[0]);
  (*recorder)->Finish();
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace weft::router
