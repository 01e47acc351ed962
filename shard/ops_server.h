// What operators and probes ask a shard over HTTP: /metrics, /livez, /readyz and /startupz. A small
// server with one thread. Owned by main, started before the load and stopped by its end; all of its
// work is on its own thread. Every wait has a deadline, every head and the number of connections a
// bound, so that a client can delay others but not keep them out. It never touches the shard's
// work: it reads the registry of common/metrics.h and asks `health`, which answers from memory.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::shard {

// How a shard is. Whoever restarts what is not live loses a loaded model: live is false only when
// nothing else can help.
struct ShardHealth {
  // The device thread has shown life of late.
  bool live = true;
  // The model is loaded.
  bool started = true;
  // Loaded, and not failed: a router may form a group with it, or has.
  bool ready = true;
  // For people, in the body of an answer: "ready", "loading 40 %", "failed: ...".
  std::string text = "ready";
};

struct OpsServerOptions {
  // An address to listen on, an IPv6 one with or without brackets; "localhost" is 127.0.0.1.
  std::string host = "127.0.0.1";
  // 0 = a free one.
  uint32_t port = 0;
  // From a connection's first moment to the last byte of its answer; then it is closed.
  absl::Duration client_timeout = absl::Seconds(5);
  // Asked on the server's thread; must not block. None = always well.
  std::function<ShardHealth()> health;
};

class OpsServer {
 public:
  // Binds and serves. Errors name the flag (--metrics-host, --metrics-port), the address and the
  // way out; RESOURCE_EXHAUSTED when there is no thread to be had.
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(const OpsServerOptions& options);
  // Closes what is open, in the middle of an answer too. Blocks until its thread has ended.
  ~OpsServer();

  OpsServer(const OpsServer&) = delete;
  OpsServer& operator=(const OpsServer&) = delete;

  // "host:port" with the port that it has.
  std::string address() const;

 private:
  class Impl;
  explicit OpsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::shard
