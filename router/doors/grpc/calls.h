// The calls of the public gRPC service that are under way: bounds their number and how long they
// wait for their messages, wakes those with news once per batch of events, and lets the watcher
// look at all. Owned by the gRPC server, outlives its calls. Thread-safe; it calls into a call
// without its lock.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/grpc/awaited_messages.h"
#include "router/waker.h"

namespace weft::router {

class GrpcCalls : public Waker {
 public:
  // At most `working_max` calls whose message has come.
  GrpcCalls(size_t working_max, const AwaitedLimits& awaited);

  // From a call's begin to its OnDone.
  void Add(GrpcCall* call);
  void Remove(GrpcCall* call);
  // Its head is good: it waits for its message. Another may have to give up for it.
  void AwaitMessage(GrpcCall* call, const void* connection);
  // Its message has come. False when too many are being worked on.
  bool MessageCame(GrpcCall* call);

  // Gives up those whose message does not come, and ends those whose client has taken nothing for
  // `slow_us`. For the watcher, a few times a second.
  void Look(int64_t now_us, int64_t slow_us);

  void MarkDirty(std::shared_ptr<GrpcCall> call);
  void Wake() override;

 private:
  const size_t working_max_;
  const int64_t message_timeout_us_;
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<GrpcCall>> dirty_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<GrpcCall*> all_ ABSL_GUARDED_BY(mutex_);
  AwaitedMessages awaited_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
