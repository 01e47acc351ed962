// What this process may use of its machine: memory (RAM and control groups), CPU time and processes
// (control groups). Reads the groups that the process is in, of versions 1 and 2, from its own up
// to the root of what is mounted: the lowest limit on the way holds. Pure but for the files that it
// reads; for main threads at start. Knows nothing of what the limits are for.

#pragma once

#include <cstdint>
#include <string>

#include "absl/types/optional.h"

namespace weft {

struct CgroupLimits {
  // Nothing where there is no limit; `memory_file` and `cpu_file` are the files that say so, as
  // "/sys/fs/cgroup/memory.max".
  absl::optional<uint64_t> memory_bytes;
  std::string memory_file;
  // Cores' worth of CPU time, as 1.5.
  absl::optional<double> cpus;
  std::string cpu_file;
  // Processes and threads of the group that may still be started, by the tightest limit on the way.
  absl::optional<uint64_t> tasks_left;
  std::string tasks_file;
};

// `root` stands in front of every path that is read: "" on a machine, a directory in tests. What
// cannot be read limits nothing.
CgroupLimits ReadCgroupLimits(const std::string& root);

struct MemoryLimit {
  // 0 when nothing says.
  uint64_t bytes = 0;
  // "RAM", or "RAM for this container (<file>)".
  std::string name;
};

// The lower of RAM and the group's limit.
MemoryLimit HostMemoryLimit(const std::string& root);

// RAM that nobody uses now, or only as a cache of files, bytes; 0 when nothing says.
uint64_t AvailableRam(const std::string& root);

// Of `cores` those that the CPU limit pays for, rounded up; at least 1.
uint32_t CoresWithin(uint32_t cores, const CgroupLimits& limits);

}  // namespace weft
