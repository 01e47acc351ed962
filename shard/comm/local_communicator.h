// The communicator of a group of one: staged values are added straight into the target. Owned by
// the ModelRunner of the epoch, called by the device thread only. Never waits.

#pragma once

#include <cstdint>
#include <memory>

#include "shard/comm/communicator.h"

namespace weft::shard {

// `capacity_floats`: the largest count that Stage may be asked for; 0 = never. The buffer is taken
// here, once (invariant mem.plan).
std::unique_ptr<HostCommunicator> MakeLocalCommunicator(int64_t capacity_floats);

}  // namespace weft::shard
