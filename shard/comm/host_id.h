// Tells hosts apart for ranks that would map each other's memory. Pure but for the file it reads;
// any thread.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/ids.h"

namespace weft::shard {

// Of this host since it was booted, the same in all of its containers; 0 when nothing says. `root`
// stands in front of the path that is read: "" on a machine, a directory in tests.
uint64_t HostId(const std::string& root);

// FAILED_PRECONDITION when `rank`, whose host is `theirs`, is known to be on another host than
// `mine`.
absl::Status CheckSameHost(Rank rank, uint64_t mine, uint64_t theirs);

}  // namespace weft::shard
