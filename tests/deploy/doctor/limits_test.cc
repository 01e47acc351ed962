// Limits of a made-up system, each too small once.

#include "deploy/launcher/doctor/limits.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "tests/deploy/doctor/fake_host.h"

namespace weft::launcher {
namespace {

using test::FakeHost;
using test::Only;

template <typename Check, typename... Rest>
Finding Found(const std::string& what, Check check, const FakeHost& host, const Rest&... rest) {
  Report report;
  check(host, rest..., &report);
  return Only(report, what);
}

TEST_CASE("Few open files are a warning, next to none a failure", "[doctor]") {
  FakeHost host;
  ServeOptions options;
  const auto found = [&] { return Found("open files", CheckOpenFiles, host, options); };
  CHECK(found().verdict == Verdict::kOk);
  host.open_files_max = 4096;
  CHECK(found().verdict == Verdict::kWarn);
  CHECK(absl::StrContains(found().found, "may take 6400"));
  CHECK(absl::StrContains(found().way_out, "LimitNOFILE="));
  options.router.connections_max = 100;
  options.router.grpc_connections_max = 100;
  CHECK(found().verdict == Verdict::kOk);
  host.open_files_max = 64;
  CHECK(found().verdict == Verdict::kFail);
}

TEST_CASE("Limits of processes are named by where they come from", "[doctor]") {
  FakeHost host;
  ServeOptions options;
  options.shards = 2;
  const auto found = [&] {
    return Found("processes and threads", CheckProcesses, host, options, false);
  };
  CHECK(found().verdict == Verdict::kOk);
  host.Limit("pids.max", "100\n");
  host.File("sys/fs/cgroup/pids.current", "60\n");
  CHECK(found().verdict == Verdict::kFail);
  CHECK(absl::StrContains(found().found, "/sys/fs/cgroup/pids.max leaves 40"));
  CHECK(absl::StrContains(found().way_out, "--pids-limit"));
  host.File("sys/fs/cgroup/pids.current", "61\n");
  CHECK(absl::StrContains(found().found, "leaves 39"));
  host.Limit("pids.max", "4096\n");
  CHECK(found().verdict == Verdict::kOk);
  CHECK(absl::StrContains(found().found, "leaves 4035"));
  // `ulimit -u` and what no file says: threads are tried.
  host.threads_left = absl::ResourceExhaustedError("no more threads: raise ulimit -u");
  CHECK(found().verdict == Verdict::kFail);
  CHECK(found().found == "no more threads: raise ulimit -u");
}

TEST_CASE("Threads that a group's cores do not pay for are named with the flags", "[doctor]") {
  FakeHost host;
  host.cores = 64;
  ServeOptions options;
  options.router.io_threads = options.router.text_threads = 4;
  options.router.mask_threads = 8;
  const auto found = [&](bool cuda) { return Found("cores", CheckCores, host, options, cuda); };
  CHECK(found(false).verdict == Verdict::kOk);
  CHECK(found(false).found == "64 cores");
  host.Limit("cpu.max", "150000 100000\n");
  CHECK(found(false).verdict == Verdict::kWarn);
  CHECK(absl::StrContains(found(false).found, "1.5 of 64 cores by /sys/fs/cgroup/cpu.max"));
  CHECK(found(false).way_out == "--io-threads 1 --text-threads 1 --mask-threads 2");
  options.router.io_threads = options.router.text_threads = options.router.mask_threads = 1;
  CHECK(found(false).verdict == Verdict::kOk);
  options.shards = 4;
  CHECK(absl::StrContains(found(false).found, "4 shards compute with 4 threads"));
  CHECK(absl::StrContains(found(true).found, "each of 4 GPU shards keeps one busy"));
}

TEST_CASE("An instruction set that is asked for has to be there", "[doctor]") {
  FakeHost host;
  ServeOptions options;
  const auto found = [&] { return Found("instruction set", CheckInstructionSet, host, options); };
  CHECK(found().found == "avx2");
  options.shard.cpu_isa = "avx512_bf16";
  CHECK(found().verdict == Verdict::kFail);
  CHECK(absl::StrContains(found().found, "this machine runs avx2, portable"));
  options.shard.cpu_isa = "auto";
  host.instruction_sets = {"portable"};
  CHECK(found().verdict == Verdict::kWarn);
}

TEST_CASE("A clock that is wrong or that nobody keeps is found", "[doctor]") {
  FakeHost host;
  const auto found = [&] { return Found("clock", CheckClock, host); };
  CHECK(found().verdict == Verdict::kOk);
  CHECK(found().found == "2030-03-17T17:46:40Z");
  host.synchronised = false;
  CHECK(found().verdict == Verdict::kWarn);
  // A kernel that cannot be asked says nothing.
  host.synchronised = absl::nullopt;
  CHECK(found().verdict == Verdict::kOk);
  host.now = absl::FromUnixSeconds(0);
  CHECK(found().verdict == Verdict::kFail);
}

}  // namespace
}  // namespace weft::launcher
