// CPU ranks of several hosts meet over TCP. Rank 0 listens from its Offer on and the token says
// where, with a secret of this epoch, so that only who was told by the router gets in. The others
// connect to rank 0 and say where they listen; rank 0 sends all of them that table; then every rank
// connects to those below it, and a first collective shows that all are there.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shard/comm/group_meeting.h"
#include "shard/comm/tcp_socket.h"

namespace weft::shard {

struct MeshMeetingOptions {
  // Of the largest all-reduce.
  int64_t capacity_floats = 0;
  // An address of this host at which the other ranks' hosts reach it.
  std::string host;
  PortRange ports;
};

// What a token of this meeting begins with.
inline constexpr char kMeshTokenPrefix[] = "mesh ";

// One for the life of the shard; see group_meeting.h.
std::unique_ptr<GroupMeeting> MakeMeshMeeting(MeshMeetingOptions options);

}  // namespace weft::shard
