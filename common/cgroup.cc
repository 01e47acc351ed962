#include "common/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

// Version 1 writes "no limit" as the largest number of whole pages.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

// Empty when it cannot be read.
std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Lists(absl::string_view comma_separated, absl::string_view name) {
  const std::vector<absl::string_view> names = absl::StrSplit(comma_separated, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A hierarchy in which the process has a group.
struct Hierarchy {
  // Directory of the process's group, and of the topmost one that can be seen.
  std::string group;
  std::string top;
  bool unified = false;
  // Of version 1, among options of the mount, as "rw,cpu,cpuacct".
  std::string controllers;

  bool Has(absl::string_view controller) const { return unified || Lists(controllers, controller); }
};

// The path of the process's group in `hierarchy`, from /proc/self/cgroup.
std::string GroupPath(absl::string_view membership, const Hierarchy& hierarchy) {
  for (const absl::string_view line : absl::StrSplit(membership, '\n')) {
    // "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string first = fields[1].substr(0, fields[1].find(','));
    if (first.empty() ? hierarchy.unified : Lists(hierarchy.controllers, first)) return fields[2];
  }
  return "/";
}

// The part of `path` below `mount_root`, which is what the mount shows as its top.
std::string BelowMount(absl::string_view path, absl::string_view mount_root) {
  if (mount_root != "/") {
    if (!absl::ConsumePrefix(&path, mount_root)) return "";
    if (!path.empty() && path[0] != '/') return "";
  }
  // A group outside of the namespace that the mount shows.
  if (path == "/" || absl::StrContains(path, "..")) return "";
  return std::string(path);
}

std::vector<Hierarchy> FindHierarchies(const std::string& root) {
  const std::string membership = ReadText(root + "/proc/self/cgroup");
  const std::string mounts = ReadText(root + "/proc/self/mountinfo");
  std::vector<Hierarchy> found;
  for (const absl::string_view line : absl::StrSplit(mounts, '\n')) {
    // ID, parent, device, root, mount point, options ..., "-", type, source, options of the type.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    Hierarchy hierarchy;
    hierarchy.unified = dash[1] == "cgroup2";
    if (!hierarchy.unified && dash[1] != "cgroup") continue;
    hierarchy.controllers = std::string(dash[3]);
    hierarchy.top = absl::StrCat(root, fields[4]);
    hierarchy.group =
        absl::StrCat(hierarchy.top, BelowMount(GroupPath(membership, hierarchy), fields[3]));
    found.push_back(std::move(hierarchy));
  }
  return found;
}

// Calls visit(directory) from the process's group up to the topmost one.
template <typename Visit>
void ForGroups(const Hierarchy& hierarchy, Visit visit) {
  std::string directory = hierarchy.group;
  for (;;) {
    visit(directory);
    if (directory.size() <= hierarchy.top.size()) return;
    directory.resize(directory.rfind('/'));
  }
}

// Nothing for "max".
absl::optional<uint64_t> NumberIn(const std::string& file) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadText(file)), &number)) return {};
  if (number >= kNoLimit) return {};
  return number;
}

// "150000 100000": microseconds of CPU time in each period.
absl::optional<double> CpusIn(absl::string_view quota_and_period) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(quota_and_period, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double quota = 0;
  double period = 0;
  if (fields.size() != 2 || !absl::SimpleAtod(fields[0], &quota) ||
      !absl::SimpleAtod(fields[1], &period) || !(quota > 0) || !(period > 0)) {
    return {};
  }
  return quota / period;
}

// Bytes that /proc/meminfo gives for `name`, as "MemTotal:"; 0 when it does not.
uint64_t Meminfo(const std::string& root, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(ReadText(root + "/proc/meminfo"), '\n')) {
    absl::string_view kib = line;
    if (!absl::ConsumePrefix(&kib, name) || !absl::ConsumeSuffix(&kib, "kB")) continue;
    uint64_t value = 0;
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(kib), &value)) return value << 10;
  }
  return 0;
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  const auto shown = [&root](const std::string& path) { return path.substr(root.size()); };
  for (const Hierarchy& hierarchy : FindHierarchies(root)) {
    if (hierarchy.Has("memory")) {
      ForGroups(hierarchy, [&](const std::string& directory) {
        const std::string file =
            absl::StrCat(directory, hierarchy.unified ? "/memory.max" : "/memory.limit_in_bytes");
        const absl::optional<uint64_t> bytes = NumberIn(file);
        if (!bytes.has_value() || *bytes >= limits.memory_bytes.value_or(kNoLimit)) return;
        limits.memory_bytes = bytes;
        limits.memory_file = shown(file);
      });
    }
    if (hierarchy.Has("cpu")) {
      ForGroups(hierarchy, [&](const std::string& directory) {
        const std::string file =
            absl::StrCat(directory, hierarchy.unified ? "/cpu.max" : "/cpu.cfs_quota_us");
        std::string text = ReadText(file);
        if (!hierarchy.unified) {
          absl::StrAppend(&text, " ", ReadText(absl::StrCat(directory, "/cpu.cfs_period_us")));
        }
        const absl::optional<double> cpus = CpusIn(text);
        if (!cpus.has_value() || *cpus >= limits.cpus.value_or(HUGE_VAL)) return;
        limits.cpus = cpus;
        limits.cpu_file = shown(file);
      });
    }
    // Both versions call these files alike.
    if (hierarchy.Has("pids")) {
      ForGroups(hierarchy, [&](const std::string& directory) {
        const std::string file = absl::StrCat(directory, "/pids.max");
        const absl::optional<uint64_t> most = NumberIn(file);
        if (!most.has_value()) return;
        const uint64_t there = NumberIn(absl::StrCat(directory, "/pids.current")).value_or(0);
        const uint64_t left = *most > there ? *most - there : 0;
        if (left >= limits.tasks_left.value_or(kNoLimit)) return;
        limits.tasks_left = left;
        limits.tasks_file = shown(file);
      });
    }
  }
  return limits;
}

MemoryLimit HostMemoryLimit(const std::string& root) {
  MemoryLimit limit;
  if (const uint64_t total = Meminfo(root, "MemTotal:"); total > 0) limit = {total, "RAM"};
  const CgroupLimits cgroup = ReadCgroupLimits(root);
  if (cgroup.memory_bytes.has_value() && (limit.bytes == 0 || *cgroup.memory_bytes < limit.bytes)) {
    limit = {*cgroup.memory_bytes,
             absl::StrCat("RAM for this container (", cgroup.memory_file, ")")};
  }
  return limit;
}

uint64_t AvailableRam(const std::string& root) { return Meminfo(root, "MemAvailable:"); }

uint32_t CoresWithin(uint32_t cores, const CgroupLimits& limits) {
  // A quota of a hair over whole cores, as rounding leaves it, is those cores.
  const double paid = std::ceil(limits.cpus.value_or(cores) - 1e-6);
  return std::max(1u, paid < cores ? static_cast<uint32_t>(paid) : cores);
}

}  // namespace weft
