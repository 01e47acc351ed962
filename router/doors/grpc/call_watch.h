// Stops floods of calls on the public gRPC port. Each connection has an allowance of calls
// (router/doors/grpc/call_account.h): a call takes one from it when its headers have come, which is
// before anything is worked on, and gives it back when it is let in to be worked on or ends well.
// One that its client cancels soon after its beginning gives nothing back; one whose own deadline
// is that near gives it back then. Besides, the allowance grows slowly with time. A client that
// lets its calls run never runs out: HTTP/2 lets it have fewer at a time than the allowance holds.
// One that resets them does, and its connection is ended. What all connections have taken together,
// and not given back, is bounded too, since each such call holds some 27 KB: above that the
// connection that owes most is ended, less what its calls were good for before. Who owes a few
// calls is left alone. Made by the gRPC server before its builder; outlives the grpc::Server.
// Called on gRPC's threads.
//
// Arrived is called on the thread that reads the connection. Handlers come too late for it: while a
// flood is being read, gRPC does not get to run them, and calls pile up by the gigabyte. There gRPC
// tells connections apart by an opaque key; the way by which a connection was handed over says
// which it is (router/doors/grpc/new_connections.h), or else the first handler does, which knows
// key and name. Until then a flood ends the one among the unknown connections that was accepted
// last before its first call.
//
// A client that comes back at once has a new allowance, so that calls of which little is known yet
// are bounded in all, too: those that have not come to their handler, or that wait for their
// message. Those that were answered without work are counted apart, by connection, until the answer
// is taken (router/doors/grpc/untaken_answers.h).

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "router/doors/grpc/call_accounts.h"
#include "router/doors/grpc/gate.h"
#include "router/doors/grpc/untaken_answers.h"

namespace weft::router {

struct CallBounds {
  // Calls that are early at the same time; more are refused when their headers come.
  int64_t early_max = 1600;
  // Answers that wait for clients, as router/doors/grpc/untaken_answers.h says.
  size_t untaken_max = 1024;
  CallDebtBounds debts;
};

class GrpcCallWatch {
 public:
  GrpcCallWatch(ConnectionGate* gate, const CallAllowance& allowance, const CallBounds& bounds);
  ~GrpcCallWatch();

  GrpcCallWatch(const GrpcCallWatch&) = delete;
  GrpcCallWatch& operator=(const GrpcCallWatch&) = delete;

  // For ServerBuilder::SetContextAllocator: sees when the calls of callback services begin and end.
  std::unique_ptr<grpc::ContextAllocator> MakeAllocator();
  // For ServerBuilder::experimental().SetInterceptorCreators: sees calls before their handlers. It
  // intercepts nothing.
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
  MakeInterceptors();
  // The headers of a call have come. False when it must go no further.
  bool Arrived(const CallArrival& call, int64_t now_us);
  // The handler's call is let in to be worked on, now or again.
  void Worked(grpc::CallbackServerContext* context);
  struct Origin {
    // Null where it has closed, and for Unix sockets.
    std::shared_ptr<GrpcConnection> connection;
    // When the call's headers had come.
    int64_t began_us = 0;
  };
  Origin OriginOf(const grpc::CallbackServerContext& context) const;

  // A handler's call is early, or no more.
  void AddEarly(int64_t calls) { early_.fetch_add(calls, std::memory_order_relaxed); }
  // For calls of methods that do not exist, whose contexts are not ours.
  CallAccounts* accounts() { return &accounts_; }
  // Calls that are answered without work, from the answer to their end.
  UntakenAnswers* untaken() { return &untaken_; }

 private:
  class Allocator;
  class Factory;
  struct Context;
  void Begin(grpc::CallbackServerContext* context);

  ConnectionGate* const gate_;
  const int64_t early_max_;
  const int64_t short_deadline_us_;
  std::atomic<int64_t> early_{0};
  UntakenAnswers untaken_;
  CallAccounts accounts_;
  absl::Mutex mutex_;
  // gRPC gives contexts back when a call has ended, but forgets those of calls that it drops
  // unbegun at its own end.
  absl::flat_hash_set<grpc::CallbackServerContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
