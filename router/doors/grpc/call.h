// One call, what those of all methods share: its head is checked when it comes (key, trace
// context), its message is waited for within bounds, its end is logged and counted. To gRPC every
// method is a stream both ways, although most take one message: of a method with one request the
// library reads the message itself before our code hears of the call.
//
// Calls come from gRPC's threads (On...), from the answer's writer (Pump), from the watcher
// (GiveUp, CheckSlow) and from the server at its end (Close); a mutex orders them. It keeps itself
// alive until OnDone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "router/doors/access_log.h"
#include "router/doors/door_context.h"
#include "router/doors/grpc/call_watch.h"
#include "router/doors/grpc/calls.h"

namespace weft::router {

// What calls need of their server; all of it outlives them.
struct GrpcDoor {
  DoorContext* doors;
  GrpcCallWatch* watch;
  GrpcCalls* calls;
  size_t message_bytes_max;
  // For gRPC's own services: without a key, in no log and no metric.
  bool open = false;
};

using GrpcReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

class GrpcCall : public GrpcReactor, public std::enable_shared_from_this<GrpcCall> {
 public:
  // Checks the head, then waits for the message or refuses. Returns what gRPC takes.
  static GrpcReactor* Start(const std::shared_ptr<GrpcCall>& call);

  // Ends a call that still waits for its message.
  void GiveUp(const absl::Status& status);
  // Ends a call whose client has taken nothing of what is being written for so long.
  void CheckSlow(int64_t now_us, int64_t timeout_us);
  // There is news of its answer.
  virtual void Pump() {}
  // Ends it soon, wherever it is.
  virtual void Close(const absl::Status& status) { End(status); }

  void OnReadDone(bool ok) override;
  void OnDone() override;

 protected:
  // `method` must live as long as the process.
  GrpcCall(const GrpcDoor& door, grpc::CallbackServerContext* context, absl::string_view method);

  // A message has come whole, in message(), and nothing waits to be written.
  virtual void OnMessage() = 0;
  // The client has ended its side, with no message more.
  virtual void OnMessagesEnd();
  // Whether OnMessage answers at once, so that the call needs no place among those worked on.
  virtual bool at_once() const { return false; }
  virtual void OnSlow() {}
  // Adds to what is logged of the call at its end.
  virtual void Describe(AccessRecord* /*record*/) {}
  virtual bool quiet() const { return false; }

  // The call's message is not whole, for the count of what its connection has sent.
  void BeginMessage(int64_t began_us, uint64_t header_bytes);
  // Waits for the next message; nothing may wait to be written. Nothing when the call has ended.
  void ReadMessage();
  // Both once a call, and not both. Nothing when the call was given up. They leave the message
  // alone: any thread may end a call while another reads what came.
  void End(const absl::Status& status);
  void EndWith(const grpc::ByteBuffer* answer);

  // Ends it and frees the message, of which nothing is wanted. Only where message() may be used.
  void Refuse(const absl::Status& status);

  // For the thread that tells of the message, from OnMessage until it ends or waits for the next.
  // It empties it as soon as it can: gRPC would keep megabytes that nobody reads again for as long
  // as the client takes to read its answer.
  grpc::ByteBuffer* message() { return &message_; }
  // Set before OnMessage.
  const TenantRef& tenant() const { return tenant_; }
  const std::string& traceparent() const { return traceparent_; }

  const GrpcDoor door_;
  grpc::CallbackServerContext* const context_;
  const int64_t start_us_;

  absl::Mutex mutex_;
  // Since when something has been on its way to the client; 0 = nothing is.
  int64_t write_start_us_ ABSL_GUARDED_BY(mutex_) = 0;
  // Nothing more will be written after this.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::OK;

 private:
  void Begin();
  void EndMessage(uint64_t message_bytes);
  // OK, or why the call must not be worked on: it was cancelled, or its connection was ended.
  absl::Status Wanted() const;
  void LeaveEarly() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True when the caller is the one to end the call.
  bool TakeEnd(grpc::StatusCode code, bool awaiting_only);

  const absl::string_view method_;
  // "ip:port", and the client's trace context where it is a good one.
  const std::string client_;
  std::string traceparent_;
  TenantRef tenant_;
  grpc::ByteBuffer message_;
  std::shared_ptr<GrpcCall> self_;

  // Null where it has closed, and for Unix sockets.
  std::shared_ptr<GrpcConnection> connection_;

  // While its message is not whole.
  std::optional<uint64_t> message_begin_ ABSL_GUARDED_BY(mutex_);
  bool awaiting_ ABSL_GUARDED_BY(mutex_) = true;
  // Counted by the watch as early, and as answered without work.
  bool early_ ABSL_GUARDED_BY(mutex_) = true;
  bool untaken_ ABSL_GUARDED_BY(mutex_) = false;
  // Has a place among those worked on, and ever had one.
  bool placed_ ABSL_GUARDED_BY(mutex_) = false;
  bool worked_ ABSL_GUARDED_BY(mutex_) = false;
  bool slow_ ABSL_GUARDED_BY(mutex_) = false;
  // `context_` is about to go.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::router
