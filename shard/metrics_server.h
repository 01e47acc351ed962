// The /metrics of a shard: a small HTTP server with one thread and one connection at a time,
// because one collector asks every few seconds. Owned by main, started before the load and stopped
// by its end; all of its work is on its own thread. Every wait has a deadline and every head a
// bound, so that a client can delay others but not keep them out. It never touches the shard's
// work: it reads the registry of common/metrics.h.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::shard {

struct MetricsServerOptions {
  // An address to listen on, an IPv6 one with or without brackets; "localhost" is 127.0.0.1.
  std::string host = "127.0.0.1";
  // 0 = a free one.
  uint32_t port = 0;
  // From a connection's first moment to the last byte of its answer; then it is closed.
  absl::Duration client_timeout = absl::Seconds(5);
};

class MetricsServer {
 public:
  // Binds and serves. Errors name the flag (--metrics-host, --metrics-port), the address and the
  // way out; RESOURCE_EXHAUSTED when there is no thread to be had.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const MetricsServerOptions& options);
  // Closes what is open, in the middle of an answer too. Blocks until its thread has ended.
  ~MetricsServer();

  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // "host:port" with the port that it has.
  std::string address() const;

 private:
  class Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::shard
