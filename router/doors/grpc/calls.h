// The calls of one group of methods that are under way: bounds their number and how long they wait
// for their messages, wakes those with news once per batch of events, and lets the watcher look at
// all. The groups (generation, health, reflection) have bounds of their own, so that none of them
// takes the room of another. Owned by the gRPC server, outlives its calls. Thread-safe; it calls
// into a call without its lock.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/grpc/awaited_messages.h"
#include "router/waker.h"

namespace weft::router {

struct GrpcCallLimits {
  // Calls whose message has come and that are worked on, in all and of one connection.
  size_t working_max = 4096;
  size_t connection_working_max = std::numeric_limits<size_t>::max();
  AwaitedLimits awaited;
};

class GrpcCalls : public Waker {
 public:
  explicit GrpcCalls(const GrpcCallLimits& limits);

  // From a call's begin to its OnDone. `connection` is the same for all calls of a connection.
  void Add(GrpcCall* call, const void* connection);
  void Remove(GrpcCall* call);
  // It waits for its message, and is not worked on meanwhile. Another may have to give up for it.
  void AwaitMessage(GrpcCall* call);
  // Its message has come, or never will.
  void MessageCame(GrpcCall* call);
  // From now on it is worked on. False when too many are; a refused call never counts.
  bool TakePlace(GrpcCall* call);

  // Gives up those whose message does not come, and ends those whose client has taken nothing for
  // `slow_us`. For the watcher, a few times a second.
  void Look(int64_t now_us, int64_t slow_us);
  // There is news for all of them.
  void PumpAll();
  // Ends all of them.
  void CloseAll(const absl::Status& status);

  void MarkDirty(std::shared_ptr<GrpcCall> call);
  void Wake() override;

 private:
  struct Call {
    const void* connection;
    bool working = false;
  };

  void LeavePlace(Call* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<GrpcCall>> All() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GrpcCallLimits limits_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<GrpcCall>> dirty_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<GrpcCall*, Call> all_ ABSL_GUARDED_BY(mutex_);
  size_t working_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<const void*, size_t> working_by_connection_ ABSL_GUARDED_BY(mutex_);
  AwaitedMessages awaited_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
