#include "shard/comm/host_id.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/fnv.h"

namespace weft::shard {

uint64_t HostId(const std::string& root) {
  std::ifstream file(root + "/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  if (!std::getline(file, boot_id) || boot_id.empty()) return 0;
  Fnv1a<uint64_t> hash;
  hash.AddBytes(boot_id);
  return hash.value();
}

absl::Status CheckSameHost(Rank rank, uint64_t mine, uint64_t theirs) {
  if (mine == theirs || mine == 0 || theirs == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank, " is on another host: GPUs map each other's memory inside of one"));
}

}  // namespace weft::shard
