// How the ranks of one kind of device meet for an epoch and become a group. One for the life of the
// shard, owned by the executor: Offer on rank 0 makes what all ranks are told (Rendezvous, then the
// token of JoinGroup), Meet on each makes its communicator. Knows nothing of the wire.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "shard/comm/communicator.h"
#include "shard/heartbeat.h"

namespace weft::shard {

struct MeetCall {
  Epoch epoch = 0;
  std::string token;
  Rank rank = 0;
  uint32_t world = 1;
  // Meet gives up then.
  absl::Time deadline;
  // Longest wait for another rank afterwards, in a collective.
  absl::Duration peer_timeout;
  // Beats during waits; outlives the communicator. May be null.
  Heartbeat* heartbeat = nullptr;
};

class GroupMeeting {
 public:
  virtual ~GroupMeeting() = default;

  // Rank 0, RPC thread: the token for this epoch, text under 1 KiB. Replaces the offer of an older
  // epoch; not that of a newer one.
  virtual absl::StatusOr<std::string> Offer(Epoch epoch, uint32_t world) = 0;
  // Nobody will come to the offers of this epoch and of older ones any more. Any thread.
  virtual void Withdraw(Epoch epoch) = 0;
  // Device thread: returns when all ranks are here. DEADLINE_EXCEEDED names a missing rank where
  // that is known; ABORTED after Abort.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Meet(const MeetCall& call) = 0;
  // Ends the Meet of this epoch and of earlier ones, under way or to come. Any thread.
  virtual void Abort(Epoch epoch) = 0;
};

}  // namespace weft::shard
