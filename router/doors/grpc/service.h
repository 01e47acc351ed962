// The gRPC server of the public API: weft.v1.TextGeneration, reflection, and grpc.health.v1 and the
// Open Inference Protocol that follow the server's state, all by the callback API. Made and stopped
// by main. Calls run on gRPC's threads, answers are written from the text worker that woke them.
// gRPC stays in the .cc files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "router/doors/door_context.h"

namespace weft::router {

class GrpcCredentials;  // router/doors/grpc/credentials.h

struct GrpcServerOptions {
  // "host:port" with port 0 for a free one, or "unix:/path".
  std::string address = "127.0.0.1:0";
  size_t message_bytes_max = kBodyBytesDefault;
  // Connections at the same time; one more is refused. Of these, connections without a call so far
  // (their TLS handshakes included); one more pushes out the oldest. From accept to the first call.
  size_t connections_max = kGrpcConnectionsDefault;
  size_t starting_connections_max = 256;
  int64_t first_call_timeout_us = 20'000'000;
  // A connection without calls is asked to close after this.
  int64_t connection_idle_s = 300;
  // Calls under way in all whose message has come; one more is RESOURCE_EXHAUSTED.
  int64_t calls_max = 4096;
  // Calls that wait for their message, in all, and how long (router/doors/grpc/awaited_messages.h);
  // on one connection, when they have waited for a second.
  size_t awaited_calls_max = 1024;
  size_t awaited_calls_per_connection_max = 32;
  int64_t message_timeout_us = 30'000'000;
  // Streams per connection. Calls in so many more that their clients reset at once end the
  // connection (router/doors/grpc/call_watch.h), above this rate.
  int streams_per_connection_max = 256;
  int64_t calls_per_connection_s = 50;
  // Bytes of messages and headers that are not whole yet, on all connections together; one
  // connection may have half of it, or two messages. More ends the connection that has most. Eight
  // messages of the usual bound at once are fine.
  size_t unfinished_bytes_max = 80u << 20;
  // Memory of the transport.
  size_t memory_bytes_max = 512u << 20;
  // Connections are asked to close after this, to rebalance clients; 0 = never. Streams that run
  // may go on for a day.
  int64_t connection_age_s = 0;
  // A connection that was silent for so long is pinged, and ended with its calls when the answer
  // takes longer than the time-out: its peer may have vanished behind a proxy, without a word.
  int64_t keepalive_us = 60'000'000;
  int64_t keepalive_timeout_us = 20'000'000;
  // TLS; null = clear text.
  std::shared_ptr<GrpcCredentials> credentials;
  // How often health and slow readers are looked at.
  int64_t watch_interval_us = 200'000;
};

class GrpcServer {
 public:
  // Binds and starts. `doors` must outlive the server. An error names the address.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options,
                                                           DoorContext* doors);
  // Must not run before everybody who may still call a Waker of this server has ended.
  virtual ~GrpcServer() = default;

  // 0 for a Unix socket.
  virtual int port() const = 0;
  // Health becomes NOT_SERVING at once.
  virtual void StartDrain() = 0;
  // Refuses new calls, waits for running ones up to `timeout`, then cancels them. Idempotent.
  virtual void Stop(absl::Duration timeout) = 0;
};

}  // namespace weft::router
