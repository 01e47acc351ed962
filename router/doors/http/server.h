// The HTTP server: N threads with one io_context each, connections spread over them, one public and
// one optional admin port. Knows nothing of models: requests go to the handlers of two route
// tables. Made and stopped by main. Boost stays in the .cc files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "router/doors/http/router.h"
#include "router/observe/probe.h"

namespace weft::router {

// Bounds of a connection. Times in microseconds.
struct HttpLimits {
  size_t body_bytes_max = kBodyBytesDefault;
  size_t header_bytes_max = kHeaderBytesMax;
  // From a request's first byte to the end of its header.
  int64_t header_timeout_us = 10'000'000;
  // Between two pieces of a body.
  int64_t body_timeout_us = 30'000'000;
  // Between two requests of a connection.
  int64_t idle_timeout_us = 75'000'000;
  // No byte of an answer accepted.
  int64_t slow_reader_timeout_us = 30'000'000;
  // For the client to close after an answer that closes the connection.
  int64_t linger_timeout_us = 2'000'000;
};

struct HttpServerOptions {
  // Address of the public port, and of the admin port when that is on.
  std::string host = "127.0.0.1";
  std::string admin_host = "127.0.0.1";
  // 0 = a free one.
  uint16_t port = 0;
  std::optional<uint16_t> admin_port;
  uint32_t io_threads = 2;
  // Public connections at the same time; one more gets a 503. The admin port has 64 of its own.
  size_t connections_max = kConnectionsDefault;
  HttpLimits limits;
};

class HttpServer {
 public:
  // Binds, listens and starts the threads. Errors name address and port and the way out. Routes and
  // probe must outlive the server.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           const HttpRouter* routes,
                                                           const HttpRouter* admin_routes,
                                                           Probe* probe);
  // Stops. Must not run before everybody who may still call a Waker of this server has ended.
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // 0 when there is none.
  virtual uint16_t admin_port() const = 0;
  // From now on each connection is closed after its answer; the ports stay open, so that new
  // requests are told by their handlers what is going on.
  virtual void StartDrain() = 0;
  // Waits until no answer is being made. False when `timeout` passed.
  virtual bool WaitIdle(absl::Duration timeout) = 0;
  // Closes ports and connections and joins the threads. What is in the making gets
  // OnGone(kAdmin). Idempotent. Wakers may still be called.
  virtual void Stop() = 0;
};

}  // namespace weft::router
