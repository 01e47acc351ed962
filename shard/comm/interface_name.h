// The name of the network interface that has an address: NCCL chooses interfaces by name. Reads the
// kernel's list; any thread.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weft::shard {

// "eth0" for one of its addresses. NOT_FOUND when no interface of this host has `address`, an IP
// address without brackets.
absl::StatusOr<std::string> InterfaceName(const std::string& address);

}  // namespace weft::shard
