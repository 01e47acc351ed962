// The gRPC server of the public API: weft.v1.TextGeneration by the callback API, reflection, and
// grpc.health.v1 that follows the intake's state. Made and stopped by main. Calls run on gRPC's
// threads, answers are written from the text worker that woke them. gRPC stays in the .cc files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "router/doors/front.h"

namespace weft::router {

struct GrpcServerOptions {
  // "host:port" with port 0 for a free one, or "unix:/path".
  std::string address = "127.0.0.1:0";
  size_t message_bytes_max = kBodyBytesDefault;
  // Streams per connection, and memory of the transport.
  int streams_per_connection_max = 1024;
  size_t memory_bytes_max = 512u << 20;
  // Connections are asked to close after this, to rebalance clients; 0 = never. Streams that run
  // may go on for a day.
  int64_t connection_age_s = 0;
  // How often health and slow readers are looked at.
  int64_t watch_interval_us = 200'000;
};

class GrpcServer {
 public:
  // Binds and starts. `front` must outlive the server. An error names the address.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options,
                                                           Front* front);
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
