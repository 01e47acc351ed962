// CPU ranks of one host: through shared memory, or alone.

#pragma once

#include <cstdint>
#include <memory>

#include "shard/comm/group_meeting.h"

namespace weft::shard {

// `capacity_floats`: of the largest all-reduce.
std::unique_ptr<GroupMeeting> MakeHostMeeting(int64_t capacity_floats);

}  // namespace weft::shard
