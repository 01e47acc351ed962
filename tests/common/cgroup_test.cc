// The limits of control groups, read from made-up trees of both versions.

#include "common/cgroup.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/temp_dir.h"

namespace weft {
namespace {

class Tree {
 public:
  // Writes `text` to `path` below the root.
  Tree& File(const std::string& path, absl::string_view text) {
    std::filesystem::create_directories(
        std::filesystem::path(root_.path() + "/" + path).parent_path());
    root_.Write(path, text);
    return *this;
  }
  std::string root() const { return root_.path(); }

 private:
  test::TempDir root_;
};

constexpr char kVersion2[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n";
constexpr char kVersion1[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST_CASE("A process without control groups has no limits", "[common][cgroup]") {
  Tree tree;
  const CgroupLimits limits = ReadCgroupLimits(tree.root());
  CHECK_FALSE(limits.memory_bytes.has_value());
  CHECK_FALSE(limits.cpus.has_value());
  CHECK(HostMemoryLimit(tree.root()).bytes == 0);
  CHECK(CoresWithin(6, limits) == 6);
}

TEST_CASE("The limits of version 2 are read", "[common][cgroup]") {
  Tree tree;
  tree.File("proc/self/cgroup", "0::/\n")
      .File("proc/self/mountinfo", kVersion2)
      .File("sys/fs/cgroup/memory.max", "2147483648\n")
      .File("sys/fs/cgroup/cpu.max", "150000 100000\n");
  const CgroupLimits limits = ReadCgroupLimits(tree.root());
  CHECK(limits.memory_bytes == uint64_t{2} << 30);
  CHECK(limits.memory_file == "/sys/fs/cgroup/memory.max");
  CHECK(limits.cpus == 1.5);
  CHECK(limits.cpu_file == "/sys/fs/cgroup/cpu.max");
  CHECK(CoresWithin(64, limits) == 2);
  CHECK(CoresWithin(1, limits) == 1);
}

TEST_CASE("Processes that may still be started are those of the tightest group on the way",
          "[common][cgroup]") {
  Tree tree;
  tree.File("proc/self/cgroup", "0::/a/b\n").File("proc/self/mountinfo", kVersion2);
  CHECK_FALSE(ReadCgroupLimits(tree.root()).tasks_left.has_value());
  tree.File("sys/fs/cgroup/a/b/pids.max", "max\n")
      .File("sys/fs/cgroup/a/pids.max", "100\n")
      .File("sys/fs/cgroup/a/pids.current", "60\n");
  CHECK(ReadCgroupLimits(tree.root()).tasks_left == 40);
  CHECK(ReadCgroupLimits(tree.root()).tasks_file == "/sys/fs/cgroup/a/pids.max");
  tree.File("sys/fs/cgroup/a/b/pids.max", "50\n").File("sys/fs/cgroup/a/b/pids.current", "55\n");
  CHECK(ReadCgroupLimits(tree.root()).tasks_left == 0);
  CHECK(ReadCgroupLimits(tree.root()).tasks_file == "/sys/fs/cgroup/a/b/pids.max");
}

TEST_CASE("RAM that is free now is read beside all there is", "[common][cgroup]") {
  Tree tree;
  CHECK(AvailableRam(tree.root()) == 0);
  tree.File("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:   500 kB\n");
  CHECK(AvailableRam(tree.root()) == 500 << 10);
  CHECK(HostMemoryLimit(tree.root()).bytes == 1000 << 10);
}

TEST_CASE("A group without a limit of its own has that of the groups above it",
          "[common][cgroup]") {
  Tree tree;
  tree.File("proc/self/cgroup", "0::/pods/pod7/shard\n")
      .File("proc/self/mountinfo", kVersion2)
      .File("sys/fs/cgroup/pods/pod7/shard/memory.max", "max\n")
      .File("sys/fs/cgroup/pods/pod7/shard/cpu.max", "800000 100000\n")
      .File("sys/fs/cgroup/pods/pod7/memory.max", "1000000\n")
      .File("sys/fs/cgroup/pods/pod7/cpu.max", "max 100000\n")
      .File("sys/fs/cgroup/pods/memory.max", "3000000\n")
      .File("sys/fs/cgroup/pods/cpu.max", "400000 100000\n");
  const CgroupLimits limits = ReadCgroupLimits(tree.root());
  CHECK(limits.memory_bytes == 1000000u);
  CHECK(limits.memory_file == "/sys/fs/cgroup/pods/pod7/memory.max");
  CHECK(limits.cpus == 4.0);
  CHECK(CoresWithin(64, limits) == 4);
}

TEST_CASE("The limits of version 1 are read", "[common][cgroup]") {
  Tree tree;
  tree.File("proc/self/cgroup", "5:memory:/job\n3:cpu,cpuacct:/job\n0::/\n")
      .File("proc/self/mountinfo", kVersion1)
      .File("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
      .File("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")
      .File("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n")
      .File("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
      .File("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
      .File("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = ReadCgroupLimits(tree.root());
  CHECK(limits.memory_bytes == uint64_t{1} << 30);
  CHECK(limits.memory_file == "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  CHECK(limits.cpus == 0.5);
  CHECK(CoresWithin(64, limits) == 1);
}

TEST_CASE("A container that sees its own group as the top of the mount is found there",
          "[common][cgroup]") {
  Tree tree;
  tree.File("proc/self/cgroup", "5:memory:/docker/abc\n")
      .File("proc/self/mountinfo",
            "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n")
      .File("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096000\n");
  CHECK(ReadCgroupLimits(tree.root()).memory_bytes == 4096000u);
  // A path that only begins with the same letters is another group.
  tree.File("proc/self/cgroup", "5:memory:/docker/abcdef/x\n");
  CHECK(ReadCgroupLimits(tree.root()).memory_bytes == 4096000u);
}

TEST_CASE("The lower of RAM and the group's limit holds and is named", "[common][cgroup]") {
  Tree tree;
  tree.File("proc/meminfo", "MemTotal:        2048 kB\nMemFree:  1 kB\n");
  CHECK(HostMemoryLimit(tree.root()).bytes == 2048u << 10);
  CHECK(HostMemoryLimit(tree.root()).name == "RAM");
  tree.File("proc/self/cgroup", "0::/\n")
      .File("proc/self/mountinfo", kVersion2)
      .File("sys/fs/cgroup/memory.max", "1048576\n");
  const MemoryLimit limit = HostMemoryLimit(tree.root());
  CHECK(limit.bytes == 1048576);
  CHECK_THAT(limit.name, Catch::Contains("/sys/fs/cgroup/memory.max"));
  tree.File("sys/fs/cgroup/memory.max", "99999999999\n");
  CHECK(HostMemoryLimit(tree.root()).name == "RAM");
}

TEST_CASE("Files that hold nonsense limit nothing", "[common][cgroup]") {
  Tree tree;
  tree.File("proc/self/cgroup", "0::/../../x\nno colon\n7:\n")
      .File("proc/self/mountinfo", absl::StrCat("short\n", kVersion2, "- cgroup2\n"))
      .File("sys/fs/cgroup/memory.max", "-5\n")
      .File("sys/fs/cgroup/cpu.max", "100000 0\n");
  const CgroupLimits limits = ReadCgroupLimits(tree.root());
  CHECK_FALSE(limits.memory_bytes.has_value());
  CHECK_FALSE(limits.cpus.has_value());
}

}  // namespace
}  // namespace weft
