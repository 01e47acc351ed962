// The HTTP server: N threads with one io_context each, connections spread over them, one public and
// one optional admin port. Knows nothing of models: requests go to the handlers of two route
// tables. Made and stopped by main. Boost stays in the .cc files, of OpenSSL one type's name is
// here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/doors/http/limits.h"
#include "router/doors/http/router.h"
#include "router/observe/probe.h"

// As OpenSSL declares it.
typedef struct ssl_ctx_st SSL_CTX;

namespace weft::router {

// The context that a new connection is to use; called on an io thread, must not block.
using HttpTlsContext = std::function<std::shared_ptr<SSL_CTX>()>;

struct HttpServerOptions {
  // Address of the public port, and of the admin port when that is on.
  std::string host = "127.0.0.1";
  std::string admin_host = "127.0.0.1";
  // 0 = a free one.
  uint16_t port = 0;
  std::optional<uint16_t> admin_port;
  uint32_t io_threads = 2;
  // Public connections at the same time. One more takes the place of the connection that has kept
  // its own for longest without a request, and gets a 503 when there is none. The admin port has 64
  // places of its own.
  size_t connections_max = kConnectionsDefault;
  HttpLimits limits;
  // Asked once per connection, so that a reload is seen; empty = plain HTTP.
  HttpTlsContext tls_context;
  HttpTlsContext admin_tls_context;
  // Web origins whose pages may call this server, as browsers write them (https://chat.example);
  // "*" = all. Requests with any other Origin are refused.
  std::vector<std::string> cors_origins;
  // The public port serves a page of its own, which may call it besides (OwnOrigin).
  bool own_page = false;
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
