#include "deploy/launcher/doctor/limits.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/cgroup.h"
#include "shard/thread_share.h"

namespace weft::launcher {
namespace {

// Of the router, besides connections: models, listeners, shards, event loops, reserves.
constexpr uint64_t kOwnFiles = 256;
// Threads of the router besides those that flags count, of a shard besides those that compute, and
// of the launcher: gRPC's own, logs, watches.
constexpr uint32_t kRouterThreads = 24;
constexpr uint32_t kShardThreads = 24;
constexpr uint32_t kLauncherThreads = 4;
// Before weft was written.
constexpr absl::CivilDay kNoEarlier(2025, 1, 1);

// Computing threads of one shard.
uint32_t ComputeThreads(const Host& host, const ServeOptions& options, bool cuda) {
  if (cuda) return 1;
  shard::MemoryFlags memory;
  shard::ShareCores(options.shard.threads, options.all_shards(), host.Cores(),
                    ReadCgroupLimits(host.root()), &memory);
  return memory.threads;
}

}  // namespace

void CheckOpenFiles(const Host& host, const ServeOptions& options, Report* report) {
  const uint64_t connections =
      options.router.connections_max + 2 * options.router.grpc_connections_max;
  const uint64_t most = host.OpenFilesMax();
  const std::string limit =
      most == UINT64_MAX ? "no limit" : absl::StrCat("at most ", most, " (ulimit -Hn)");
  if (most < kOwnFiles) {
    report->Fail("open files", absl::StrCat(limit, ", and a router alone needs ", kOwnFiles),
                 "raise it: ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of a container");
  } else if (most < connections + kOwnFiles) {
    report->Warn("open files",
                 absl::StrCat(limit, ", and --connections-max and --grpc-connections-max may take ",
                              connections + kOwnFiles),
                 "raise it (ulimit -n, LimitNOFILE=, --ulimit nofile=) or lower these flags");
  } else {
    report->Ok("open files", absl::StrCat(limit, ", all connections take ", connections));
  }
}

void CheckProcesses(const Host& host, const ServeOptions& options, bool cuda, Report* report) {
  // A template's worker is a process of one thread.
  const uint32_t router = kRouterThreads + options.router.io_threads +
                          2 * options.router.text_threads + options.router.mask_threads;
  const uint32_t shard = kShardThreads + ComputeThreads(host, options, cuda);
  const uint32_t needed = kLauncherThreads + router + options.all_shards() * shard;
  const CgroupLimits limits = ReadCgroupLimits(host.root());
  const absl::Status left = host.ThreadsLeft(needed);
  if (limits.tasks_left.has_value() && *limits.tasks_left < needed) {
    report->Fail("processes and threads",
                 absl::StrCat(limits.tasks_file, " leaves ", *limits.tasks_left,
                              ", and a server needs about ", needed),
                 "raise it: TasksMax= of systemd, --pids-limit of a container, podPidsLimit of "
                 "the kubelet");
  } else if (!left.ok()) {
    report->Fail("processes and threads", left);
  } else {
    const std::string group =
        limits.tasks_left.has_value()
            ? absl::StrCat(" (", limits.tasks_file, " leaves ", *limits.tasks_left, ")")
            : "";
    report->Ok("processes and threads", absl::StrCat("about ", needed, " can be started", group));
  }
}

void CheckCores(const Host& host, const ServeOptions& options, bool cuda, Report* report) {
  const uint32_t cores = host.Cores();
  const CgroupLimits limits = ReadCgroupLimits(host.root());
  const uint32_t paid = CoresWithin(cores, limits);
  const std::string found =
      paid < cores ? absl::StrFormat("%.1f of %d cores by %s", *limits.cpus, cores, limits.cpu_file)
                   : absl::StrCat(cores, cores == 1 ? " core" : " cores");
  const uint32_t router =
      options.router.io_threads + options.router.text_threads + options.router.mask_threads;
  const uint32_t computing = options.all_shards() * ComputeThreads(host, options, cuda);
  if (paid < cores && router > 2 * paid) {
    report->Warn("cores",
                 absl::StrCat(found, ", and the router has ", router,
                              " threads for connections, texts and masks, which follow all cores"),
                 absl::StrCat("--io-threads ", std::max(1u, paid / 4), " --text-threads ",
                              std::max(1u, paid / 4), " --mask-threads ", paid));
  } else if (!cuda && computing > paid) {
    report->Warn("cores",
                 absl::StrCat(found, ", and ", options.all_shards(), " shards compute with ",
                              computing, computing == 1 ? " thread" : " threads"),
                 "give it more cores, or use fewer --shards or --threads");
  } else if (cuda && options.all_shards() > paid) {
    report->Warn("cores",
                 absl::StrCat(found, ", and each of ", options.all_shards(),
                              " GPU shards keeps one busy while it launches"),
                 "give it a core for each shard and one for the router");
  } else {
    report->Ok("cores", found);
  }
}

void CheckInstructionSet(const Host& host, const ServeOptions& options, Report* report) {
  const std::vector<std::string> sets = host.InstructionSets();
  const std::string& asked = options.shard.cpu_isa;
  const std::string all = absl::StrJoin(sets, ", ");
  if (asked != "auto" && std::find(sets.begin(), sets.end(), asked) == sets.end()) {
    report->Fail("instruction set", absl::StrCat("--cpu-isa ", asked, ": this machine runs ", all),
                 "name one of these, or auto");
  } else if (sets.empty() || sets.front() == "portable") {
    report->Warn("instruction set",
                 "neither AVX2 nor AVX-512 with BF16: products take many times "
                 "as long",
                 "use a newer machine, or let the virtual machine pass its CPU through");
  } else {
    report->Ok("instruction set", asked == "auto" ? sets.front() : asked);
  }
}

void CheckClock(const Host& host, Report* report) {
  const absl::Time now = host.Now();
  const std::string shown = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now, absl::UTCTimeZone());
  if (absl::ToCivilDay(now, absl::UTCTimeZone()) < kNoEarlier) {
    report->Fail("clock",
                 absl::StrCat(shown,
                              " is in the past, and keys and certificates have "
                              "dates"),
                 "set it, and let chrony or systemd-timesyncd keep it");
  } else if (host.ClockIsSynchronised() == false) {
    report->Warn("clock", absl::StrCat(shown, ", and nothing keeps it right"),
                 "let chrony or systemd-timesyncd of the host keep it: keys and certificates have "
                 "dates");
  } else {
    report->Ok("clock", shown);
  }
}

}  // namespace weft::launcher
