#include "common/descriptors.h"

#include <sys/resource.h>

#include <cerrno>

namespace weft {

absl::StatusOr<uint64_t> RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::ErrnoToStatus(errno, "setrlimit");
  return static_cast<uint64_t>(limit.rlim_cur);
}

}  // namespace weft
