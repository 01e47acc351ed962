#include "shard/thread_share.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft::shard {

uint32_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

MemoryLimit ShareMemory(MemoryLimit host, uint32_t groups) {
  if (groups == 1) return host;
  host.bytes /= groups;
  absl::StrAppend(&host.name, " / ", groups, " groups");
  return host;
}

void ShareCores(uint32_t asked, uint32_t shards, uint32_t cores, const CgroupLimits& limits,
                MemoryFlags* memory) {
  if (asked > 0) {
    memory->threads = asked;
    memory->threads_reason = "--threads";
    return;
  }
  const uint32_t paid = CoresWithin(cores, limits);
  memory->threads = std::max(1u, paid / shards);
  memory->threads_reason =
      paid < cores ? absl::StrFormat("%.1f of %u cores by %s", *limits.cpus, cores, limits.cpu_file)
                   : absl::StrCat(cores, " cores");
  if (shards > 1) absl::StrAppend(&memory->threads_reason, " / ", shards, " shards");
}

}  // namespace weft::shard
