// Stops floods of calls on the public gRPC port that are reset at once. Each connection has an
// allowance of calls: a call takes one from it when its headers have come, which is before anything
// is worked on. A call that ends gives it back, unless its client cancelled it soon after its
// beginning; one whose own deadline was that near gives it back then. Besides, the allowance grows
// slowly with time. A client that lets its calls run never
// runs out: HTTP/2 lets it have fewer at a time than the allowance holds. One that resets them
// does, and its connection is ended. Made by the gRPC server before its builder; outlives the
// grpc::Server. Called on gRPC's threads.
//
// Arrived is called on the thread that reads the connection. Handlers come too late for it: while a
// flood is being read, gRPC does not get to run them, and calls pile up by the gigabyte. There gRPC
// tells connections apart by an opaque key, but does not name them; a handler knows both key and
// name. So a flood by a connection none of whose calls has come to a handler ends the one among
// such that was accepted last before its first call.
//
// A client that comes back at once has a new allowance, so that calls of which little is known yet
// are bounded in all, too: those that have not come to their handler, or that wait for their
// message. Those that were answered without work are counted apart, by connection, until the answer
// is taken (router/doors/grpc/untaken_answers.h).

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "router/doors/grpc/gate.h"
#include "router/doors/grpc/untaken_answers.h"

namespace weft::router {

struct CallAllowance {
  // What it holds at most, in calls, and by what it grows.
  int64_t calls_burst = 320;
  int64_t calls_per_s = 50;
  // A call that its client cancels earlier than this after its beginning gives nothing back, unless
  // its deadline is earlier.
  int64_t early_us = 1'000'000;
  // A call that ended so with its deadline gives back so late after its beginning at the earliest:
  // clients whose calls have short deadlines may have that much of a rate.
  int64_t deadline_min_us = 50'000;
};

class GrpcCallWatch {
 public:
  // At most `early_max` calls are early at the same time; more are refused when their headers come,
  // and so are those of connections with too many of `untaken_max` answers that wait for clients.
  GrpcCallWatch(ConnectionGate* gate, const CallAllowance& allowance, int64_t early_max,
                size_t untaken_max);
  ~GrpcCallWatch();

  GrpcCallWatch(const GrpcCallWatch&) = delete;
  GrpcCallWatch& operator=(const GrpcCallWatch&) = delete;

  // For ServerBuilder::SetContextAllocator: sees when the calls of callback services begin and end.
  std::unique_ptr<grpc::ContextAllocator> MakeAllocator();
  // For ServerBuilder::experimental().SetInterceptorCreators: sees calls before their handlers. It
  // intercepts nothing.
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
  MakeInterceptors();
  // The headers of a call have come on the connection of this key. False when it must go no
  // further.
  bool Arrived(const void* key, int64_t now_us);
  struct End {
    int64_t began_us = 0;
    // The call's own; a number beyond all times = none.
    int64_t deadline_us = std::numeric_limits<int64_t>::max();
    // Before it was answered, by its client or its deadline.
    bool cancelled = false;
  };
  // A call has ended.
  void Ended(const void* key, int64_t now_us, const End& end);
  struct Origin {
    // Null where it has closed, and for Unix sockets.
    std::shared_ptr<GrpcConnection> connection;
    // When the call's headers had come.
    int64_t began_us = 0;
  };
  Origin OriginOf(const grpc::CallbackServerContext& context) const;

  // A handler's call is early, or no more.
  void AddEarly(int64_t calls) { early_.fetch_add(calls, std::memory_order_relaxed); }
  // Calls that are answered without work, from the answer to their end.
  UntakenAnswers* untaken() { return &untaken_; }

 private:
  class Allocator;
  class Factory;
  struct Context;
  // Of one connection. `left` is in millionths of a call, as of `at_us`.
  struct Account {
    int64_t left = 0;
    int64_t at_us = 0;
    // Of its first call.
    int64_t since_us = 0;
    // When calls that have ended give back what they took, the soonest first. As many as the
    // allowance holds at most, since each has taken one.
    std::multiset<int64_t> later_us;
    std::weak_ptr<GrpcConnection> connection;
    bool named = false;
  };

  void Begin(grpc::CallbackServerContext* context);
  // Forgets those whose connections have not been heard of for so long that they are full again.
  void Sweep(int64_t now_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ConnectionGate* const gate_;
  const CallAllowance allowance_;
  const int64_t early_max_;
  std::atomic<int64_t> early_{0};
  UntakenAnswers untaken_;
  absl::Mutex mutex_;
  absl::flat_hash_map<const void*, Account> accounts_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 1024;
  // gRPC gives contexts back when a call has ended, but forgets those of calls that it drops
  // unbegun at its own end.
  absl::flat_hash_set<grpc::CallbackServerContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
