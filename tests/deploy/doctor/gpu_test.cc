// GPUs and their memory on made-up hosts.

#include "deploy/launcher/doctor/gpu.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/doctor/doctor.h"
#include "deploy/launcher/doctor/memory.h"
#include "shard/device/cuda/planning.h"
#include "tests/deploy/doctor/fake_host.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/skip.h"

namespace weft::launcher {
namespace {

using test::FakeHost;
using test::Gpus;
using test::Only;

ServeOptions Serve(const std::string& device, uint32_t shards) {
  ServeOptions options;
  options.shard.device = device;
  options.shards = shards;
  return options;
}

Report Devices(const ServeOptions& options, const shard::GpuSurvey& gpus) {
  Report report;
  CheckGpuDevices(options, gpus, &report);
  return report;
}

std::unique_ptr<shard::ModelFiles> Shape(const std::string& name) {
  auto files = shard::ModelFiles::OpenShape(weft::test::GoldenPath("../bench/shapes/") + name);
  REQUIRE(files.ok());
  return *std::move(files);
}

Finding Memory(const FakeHost& host, const ServeOptions& options, const std::string& shape) {
  Report report;
  CheckMemory(host, options, *Shape(shape), host.gpus, &report);
  return Only(report, "memory");
}

TEST_CASE("GPUs are shown with driver and libraries", "[doctor]") {
  const Report report = Devices(Serve("auto", 2), Gpus(4));
  CHECK(report.Count(Verdict::kOk) == report.findings().size());
  CHECK(absl::StrContains(Only(report, "GPU 1").found, "NVIDIA H200, 144384 MiB, 600 MiB in use"));
  CHECK(Only(report, "driver").found == "CUDA 13.0, this build is made with 13.0");
  CHECK(absl::StrContains(Only(report, "libraries").found, "NCCL 2.28.9"));
  // Those of other servers are none of this one's.
  CHECK_FALSE(absl::StrContains(report.Text(), "GPU 2"));
}

TEST_CASE("GPUs that are asked for and cannot be used are failures", "[doctor]") {
  Report report = Devices(Serve("cuda", 1), Gpus(0));
  CHECK(Only(report, "device").verdict == Verdict::kFail);
  CHECK(absl::StrContains(Only(report, "device").found, "no NVIDIA driver"));
  report = Devices(Serve("auto", 4), Gpus(2));
  CHECK(absl::StrContains(Only(report, "device").found, "this host shows 2; use --shards 2"));
  shard::GpuSurvey old = Gpus(2);
  old.gpus[1].serves = absl::FailedPreconditionError("GPU 1 has compute capability 8.0");
  report = Devices(Serve("auto", 2), old);
  CHECK(Only(report, "device").verdict == Verdict::kFail);
  CHECK(absl::StrContains(Only(report, "device").found, "compute capability 8.0"));
  CHECK(Devices(Serve("auto", 1), old).Count(Verdict::kFail) == 0);
}

TEST_CASE("Without GPUs the CPU computes, and the reason is shown", "[doctor]") {
  const Finding found = Only(Devices(Serve("auto", 2), Gpus(0)), "device");
  CHECK(found.verdict != Verdict::kFail);
  CHECK(absl::StrContains(found.found, "the CPU computes: no NVIDIA driver"));
  CHECK_FALSE(TakesGpus(Serve("auto", 2), Gpus(0)));
  CHECK(TakesGpus(Serve("auto", 2), Gpus(1)));
  CHECK_FALSE(TakesGpus(Serve("cpu", 2), Gpus(1)));
}

TEST_CASE("GPUs out of reach and a small /dev/shm are warned of", "[doctor]") {
  FakeHost host;
  shard::GpuSurvey gpus = Gpus(3);
  const auto report = [&](uint32_t shards) {
    Report made;
    CheckExchange(host, Serve("cuda", shards), gpus, &made);
    return made;
  };
  CHECK(report(1).findings().empty());
  CHECK(report(3).Count(Verdict::kOk) == 2);
  gpus.gpus[0].out_of_reach = {2};
  CHECK(report(2).Count(Verdict::kOk) == 2);
  CHECK(absl::StrContains(Only(report(3), "GPUs among each other").found,
                          "GPU 0 does not reach the memory of GPU 2"));
  host.dev_shm_bytes = uint64_t{64} << 20;
  CHECK(Only(report(2), "/dev/shm").verdict == Verdict::kWarn);
  CHECK(absl::StrContains(Only(report(2), "/dev/shm").way_out, "256 MiB: --shm-size"));
  host.dev_shm_bytes = absl::nullopt;
  CHECK(Only(report(2), "/dev/shm").verdict == Verdict::kFail);
  // GPUs that are not there reach nobody's memory.
  for (const uint32_t there : {0u, 2u}) {
    gpus = Gpus(there);
    CHECK_FALSE(absl::StrContains(report(3).Text(), "GPUs among each other"));
  }
}

TEST_CASE("CPU shards that cannot meet are a failure with the reasons there may be", "[doctor]") {
  FakeHost host;
  host.meet = absl::PermissionDeniedError("a second process could not open the shared memory");
  Report report;
  CheckExchange(host, Serve("cpu", 2), Gpus(0), &report);
  CHECK(Only(report, "shared memory of shards").verdict == Verdict::kFail);
  CHECK(absl::StrContains(Only(report, "shared memory of shards").way_out, "hidepid"));
  Report alone;
  CheckExchange(host, Serve("cpu", 1), Gpus(0), &alone);
  CHECK(alone.findings().empty());
}

TEST_CASE("CPU shards are held against RAM and the control group", "[doctor]") {
  FakeHost host;
  const ServeOptions options = Serve("cpu", 2);
  CHECK(Memory(host, options, "llama-3.2-1b").verdict == Verdict::kOk);
  host.Limit("memory.max", "2147483648\n");
  const Finding small = Memory(host, options, "llama-3.2-1b");
  CHECK(small.verdict == Verdict::kFail);
  CHECK(absl::StrContains(small.found, "RAM for this container (/sys/fs/cgroup/memory.max)"));
  host.Limit("memory.max", "max\n");
  host.File("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 1000000 kB\n");
  const Finding busy = Memory(host, options, "llama-3.2-1b");
  CHECK(busy.verdict == Verdict::kWarn);
  CHECK(absl::StrContains(busy.found, "only 976 MiB of RAM are free now"));
}

TEST_CASE("Where not even the processes fit nothing else is looked at", "[doctor]") {
  FakeHost host;
  host.Limit("memory.max", absl::StrCat(100 << 20, "\n"));
  const Report report = Diagnose(host, Serve("cpu", 2));
  REQUIRE(report.findings().size() == 1);
  CHECK(report.findings()[0].verdict == Verdict::kFail);
  CHECK(absl::StrContains(report.findings()[0].found, "launcher, router and 2 shards take"));
}

TEST_CASE("RAM that is free now has to hold weights and pools", "[doctor]") {
  FakeHost host;
  const ServeOptions options = Serve("cpu", 2);
  const std::string found = Memory(host, options, "llama-3.2-1b").found;
  uint64_t used_mib = 0;
  REQUIRE(absl::SimpleAtoi(found.substr(0, found.find(' ')), &used_mib));
  const auto with = [&](uint64_t mib) {
    host.File("proc/meminfo",
              absl::StrCat("MemTotal: 67108864 kB\nMemAvailable: ", mib * 1024, " kB\n"));
    return Memory(host, options, "llama-3.2-1b").verdict;
  };
  CHECK(with(used_mib + 1) == Verdict::kOk);
  CHECK(with(used_mib - 1) == Verdict::kWarn);
}

TEST_CASE("A pool that the limit makes smaller is a warning", "[doctor]") {
  FakeHost host;
  // From what is enough down to the first limit that is not.
  Finding found{Verdict::kOk, "", "", ""};
  for (uint64_t mib = 8192; mib > 1024 && found.verdict == Verdict::kOk; mib -= 256) {
    host.Limit("memory.max", absl::StrCat(mib << 20, "\n"));
    found = Memory(host, Serve("cpu", 1), "llama-3.2-1b");
  }
  INFO(found.found);
  CHECK(found.verdict == Verdict::kWarn);
  CHECK(absl::StrContains(found.found, "that there would be with more memory"));
  CHECK(absl::StrContains(found.way_out, "--kv-memory"));
}

TEST_CASE("GPU shards are held against the GPU's memory", "[doctor]") {
  if (!shard::CudaIsBuilt().ok()) {
    weft::test::SkipTest("cuda_build", "without CUDA there are no plans of GPU shards");
  }
  FakeHost host;
  host.gpus = Gpus(2);
  CHECK(Memory(host, Serve("cuda", 1), "llama-3.1-8b").verdict == Verdict::kOk);
  CHECK(Memory(host, Serve("cuda", 2), "llama-3.1-70b").verdict == Verdict::kOk);
  // Another program has most of the second one.
  host.gpus.gpus[1].used_bytes = uint64_t{100} << 30;
  Report report;
  CheckMemory(host, Serve("cuda", 2), *Shape("llama-3.1-70b"), host.gpus, &report);
  CHECK(report.Count(Verdict::kFail) == 1);
  CHECK(absl::StrContains(report.Text(), "GPU 1"));
}

}  // namespace
}  // namespace weft::launcher
