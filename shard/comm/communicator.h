// How the ranks of one epoch exchange activations. Built in JoinGroup (group_meeting.h), used by
// the device thread only (Abort: by any thread), destroyed with the epoch. Every wait is bounded
// and ends early on Abort. All ranks make the same calls in the same order (invariant rank.same).
// What can be exchanged depends on where activations live: HostCommunicator here,
// nccl_communicator.h for GPUs.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/ids.h"

namespace weft::shard {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual uint32_t world() const = 0;

  // Makes every wait of this rank, present and future, return ABORTED. Any thread.
  virtual void Abort() = 0;
};

// Activations in the memory of the process. Sums are in rank order, so results are equal on all
// ranks, bit for bit.
class HostCommunicator : public Communicator {
 public:
  // Where this rank writes its partial sums for the next AllReduceAdd; `count` floats, 64-byte
  // aligned, at most the capacity given at construction. Valid until that call returns.
  virtual float* Stage(int64_t count) = 0;
  // target[i] += sum over ranks of their staged values i, in rank order, in float32.
  // ABORTED after Abort; DEADLINE_EXCEEDED when a peer does not come (says which).
  virtual absl::Status AllReduceAdd(float* target, int64_t count) = 0;
  // Gathers `bytes` of every rank into `all` (world * bytes), in rank order.
  virtual absl::Status AllGather(const void* mine, size_t bytes, void* all) = 0;

  // Microseconds this rank has waited for others so far.
  virtual uint64_t waited_us() const = 0;
};

}  // namespace weft::shard
