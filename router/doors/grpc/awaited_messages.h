// Which calls have begun and wait for their message, and which of them must give up: a call whose
// message does not come holds memory and one of the places that others want. Owned by GrpcCalls,
// under its lock. Pure: it has no clock, and never touches a call.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace weft::router {

class GrpcCall;

struct AwaitedLimits {
  // Calls that wait, in all; one more makes the oldest of the connection that has most give up.
  size_t calls_max = 1024;
  // Calls of one connection that have waited for longer than the grace; more of them, the oldest
  // first, give up. A burst of calls whose messages follow at once may be as large as streams are.
  size_t connection_calls_max = 32;
  int64_t grace_us = 1'000'000;
  // From the call's head to the end of its message.
  int64_t timeout_us = 30'000'000;
};

class AwaitedMessages {
 public:
  explicit AwaitedMessages(const AwaitedLimits& limits) : limits_(limits) {}

  // `call` waits from now on; `connection` is the same for all calls of a connection. Returns the
  // call that must give up for it and waits no more; null when there is room.
  GrpcCall* Add(GrpcCall* call, const void* connection, int64_t now_us);
  // Its message has come, or it has ended. Nothing for one that does not wait.
  void Remove(GrpcCall* call);

  // Calls that wait no more because they must give up.
  struct Overdue {
    std::vector<GrpcCall*> late;
    std::vector<GrpcCall*> too_many;
  };
  Overdue TakeOverdue(int64_t now_us);

  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    GrpcCall* call;
    const void* connection;
    int64_t since_us;
  };
  using Queue = std::list<Waiting>;

  GrpcCall* Take(Queue::iterator at);
  const void* LargestConnection() const;

  const AwaitedLimits limits_;
  Queue waiting_;  // the oldest first
  absl::flat_hash_map<const GrpcCall*, Queue::iterator> by_call_;
  absl::flat_hash_map<const void*, size_t> by_connection_;
};

}  // namespace weft::router
