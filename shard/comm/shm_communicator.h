// The communicator of 2 .. N CPU ranks of one host, through shared memory. Built by the executor
// in JoinGroup, then owned by the ModelRunner; used by the device thread, Abort by any thread.
// It takes no memory after Open and never waits longer than its time-out, whatever its peers do.
//
// A collective is: write the own window, meet at a barrier, read all windows. Windows are double:
// whoever has passed barrier g knows that all ranks have finished reading barrier g - 1's windows,
// so one barrier a collective is enough.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "shard/comm/communicator.h"
#include "shard/comm/shm_segment.h"
#include "shard/heartbeat.h"

namespace weft::shard {

class ShmCommunicator : public HostCommunicator {
 public:
  // Takes `rank`'s place in the segment that `token` names. Errors as ShmMapping::Open, and
  // ALREADY_EXISTS when another process holds the rank. `wait_timeout` bounds each wait for a
  // peer; `heartbeat`, when given, beats while waiting and outlives the communicator.
  static absl::StatusOr<std::unique_ptr<ShmCommunicator>> Open(absl::string_view token,
                                                               const ShmShape& shape, Rank rank,
                                                               absl::Duration wait_timeout,
                                                               Heartbeat* heartbeat);

  // Waits until every rank is here, at most `timeout`: the first call, once. DEADLINE_EXCEEDED
  // names a missing rank; the others then get ABORTED.
  absl::Status Meet(absl::Duration timeout);

  Rank rank() const override { return rank_; }
  uint32_t world() const override { return shape_.world; }
  // No other collective may come between Stage and its AllReduceAdd: they share the window.
  float* Stage(int64_t count) override;
  absl::Status AllReduceAdd(float* target, int64_t count) override;
  // Goes in pieces of a window when `bytes` is larger.
  absl::Status AllGather(const void* mine, size_t bytes, void* all) override;
  // Ends the waits of all ranks, not only of this one.
  void Abort() override;
  uint64_t waited_us() const override { return waited_us_.load(std::memory_order_relaxed); }

 private:
  ShmCommunicator(std::unique_ptr<ShmMapping> mapping, const ShmShape& shape, Rank rank,
                  absl::Duration wait_timeout, Heartbeat* heartbeat);

  // All ranks' windows of this collective are written when it returns OK.
  absl::Status Barrier(absl::Duration timeout);
  // Waits until `peer` has arrived at generation_.
  absl::Status WaitFor(Rank peer, int64_t deadline_ns);
  bool HasArrived(uint32_t word) const;
  absl::Status AbortedStatus() const;

  const std::unique_ptr<ShmMapping> mapping_;
  ShmHeader& header_;
  const ShmShape shape_;
  const Rank rank_;
  const absl::Duration wait_timeout_;
  Heartbeat* const heartbeat_;
  // Barriers so far; its lowest bit is the parity of the next collective's windows. 31 bits.
  uint32_t generation_ = 0;
  std::atomic<uint64_t> waited_us_{0};
};

}  // namespace weft::shard
