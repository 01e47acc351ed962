// A made-up system for the checks of `weft doctor`, which a test then spoils in one place.

#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher::test {

// A GPU that serves.
inline shard::SurveyedGpu GoodGpu() {
  shard::SurveyedGpu gpu;
  gpu.name = "NVIDIA H200";
  gpu.total_bytes = uint64_t{141} << 30;
  gpu.used_bytes = uint64_t{600} << 20;
  return gpu;
}

inline shard::GpuSurvey Gpus(uint32_t count) {
  shard::GpuSurvey survey;
  survey.driver_cuda = survey.build_cuda = "13.0";
  survey.libraries = {"NCCL 2.28.9 (/lib/libnccl.so.2)"};
  survey.gpus.assign(count, GoodGpu());
  if (count == 0) survey.any = absl::NotFoundError("no NVIDIA driver on this host: install 580");
  return survey;
}

// 16 cores, 64 GiB, no control group, no GPU; every port but those of `taken` is free.
class FakeHost : public Host {
 public:
  FakeHost() { File("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n"); }

  // Writes a file of /proc or /sys.
  void File(const std::string& path, absl::string_view text) {
    std::filesystem::create_directories(
        std::filesystem::path(root_.path() + "/" + path).parent_path());
    root_.Write(path, text);
  }
  // Puts this process into a control group with one limit.
  void Limit(const std::string& file, absl::string_view text) {
    File("proc/self/cgroup", "0::/\n");
    File("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n");
    File("sys/fs/cgroup/" + file, text);
  }

  std::string root() const override { return root_.path(); }
  uint64_t OpenFilesMax() const override { return open_files_max; }
  absl::Status ThreadsLeft(uint32_t) const override { return threads_left; }
  uint32_t Cores() const override { return cores; }
  std::vector<std::string> InstructionSets() const override { return instruction_sets; }
  absl::Time Now() const override { return now; }
  absl::optional<bool> ClockIsSynchronised() const override { return synchronised; }
  absl::optional<uint64_t> DevShmBytes() const override { return dev_shm_bytes; }
  absl::Status Listen(const std::string&, uint32_t port) const override {
    if (port < 1024) return absl::PermissionDeniedError("cannot listen: Permission denied");
    return taken.count(port) > 0 ? absl::AlreadyExistsError("address already in use")
                                 : absl::OkStatus();
  }
  absl::Status Meet() const override { return meet; }
  bool OthersRead(const std::string&) const override { return others_read; }
  shard::GpuSurvey Gpus() const override { return gpus; }

  uint64_t open_files_max = 1 << 20;
  absl::Status threads_left;
  uint32_t cores = 16;
  std::vector<std::string> instruction_sets = {"avx2", "portable"};
  absl::Time now = absl::FromUnixSeconds(1'900'000'000);
  absl::optional<bool> synchronised = true;
  absl::optional<uint64_t> dev_shm_bytes = uint64_t{16} << 30;
  std::set<uint32_t> taken;
  absl::Status meet;
  bool others_read = false;
  shard::GpuSurvey gpus = test::Gpus(0);

 private:
  weft::test::TempDir root_;
};

// The one finding about `what`.
inline Finding Only(const Report& report, const std::string& what) {
  std::vector<Finding> found;
  for (const Finding& finding : report.findings()) {
    if (finding.what == what) found.push_back(finding);
  }
  INFO(report.Text());
  REQUIRE(found.size() == 1);
  return found[0];
}

}  // namespace weft::launcher::test
