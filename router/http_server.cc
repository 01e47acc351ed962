#include "router/doors/http/server.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/post.hpp"
#include "common/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "common/thread.h"
#include "router/http_connection.h"

namespace weft::router {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int64_t kAdminConnectionsMax = 64;

// A listening port. Its handlers run on the first worker's thread; connections go round.
struct Port {
  explicit Port(asio::io_context& io) : acceptor(io), retry(io) {}

  tcp::acceptor acceptor;
  asio::steady_timer retry;
  const HttpRouter* routes = nullptr;
  bool admin = false;
  uint16_t number = 0;
};

absl::Status ListenError(const std::string& host, uint16_t port, const error_code& error) {
  const std::string message =
      absl::StrCat("cannot listen on ", host, ":", port, ": ", error.message());
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat(message, "; choose another port, or 0 for a free one"));
  }
  return absl::FailedPreconditionError(message);
}

class AsioHttpServer : public HttpServer {
 public:
  AsioHttpServer(const HttpServerOptions& options, Probe* probe) : options_(options) {
    shared_.limits = options.limits;
    shared_.probe = probe;
    for (uint32_t i = 0; i < std::max(1u, options.io_threads); ++i) {
      workers_.push_back(std::make_unique<HttpWorker>(&shared_));
      guards_.emplace_back(workers_.back()->io().get_executor());
    }
  }

  ~AsioHttpServer() override { Stop(); }

  absl::Status Listen(const std::string& host, uint16_t number, bool admin,
                      const HttpRouter* routes) {
    error_code error;
    const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("`", host, "` is not an IP address to listen on"));
    }
    auto port = std::make_unique<Port>(workers_[0]->io());
    port->routes = routes;
    port->admin = admin;
    const tcp::endpoint endpoint(address, number);
    port->acceptor.open(endpoint.protocol(), error);
    if (!error) port->acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) port->acceptor.bind(endpoint, error);
    if (!error) port->acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) return ListenError(host, number, error);
    port->number = port->acceptor.local_endpoint(error).port();
    ports_.push_back(std::move(port));
    return absl::OkStatus();
  }

  void Run() {
    for (const std::unique_ptr<Port>& port : ports_) Accept(port.get());
    for (size_t i = 0; i < workers_.size(); ++i) {
      threads_.emplace_back(absl::StrCat("http-", i),
                            [worker = workers_[i].get()] { worker->io().run(); });
    }
  }

  uint16_t port() const override { return ports_[0]->number; }
  uint16_t admin_port() const override { return ports_.size() > 1 ? ports_[1]->number : 0; }

  void StartDrain() override { shared_.draining.store(true); }

  bool WaitIdle(absl::Duration timeout) override {
    // Polled: it happens once in a process's life, and a counter per request is all it costs.
    const int64_t end_us = MonotonicClock().NowUs() + absl::ToInt64Microseconds(timeout);
    while (shared_.busy.load() > 0) {
      if (MonotonicClock().NowUs() >= end_us) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  void Stop() override {
    if (stopped_.exchange(true)) return;
    asio::post(workers_[0]->io(), [this] {
      error_code ignored;
      for (const std::unique_ptr<Port>& port : ports_) {
        port->acceptor.close(ignored);
        port->retry.cancel();
      }
    });
    for (size_t i = 0; i < workers_.size(); ++i) {
      HttpWorker* worker = workers_[i].get();
      asio::post(worker->io(), [worker] {
        worker->CloseAll();
        worker->io().stop();
      });
    }
    for (Thread& thread : threads_) thread.Join();
  }

 private:
  void Accept(Port* port) {
    HttpWorker* worker = workers_[next_++ % workers_.size()].get();
    port->acceptor.async_accept(
        worker->io(), [this, port, worker](error_code error, tcp::socket socket) {
          if (error == asio::error::operation_aborted) return;
          if (error) {
            // Out of descriptors, most likely: connections wait in the kernel's queue meanwhile.
            WEFT_LOG_WARN("http accept failed error=\"{}\"", error.message());
            port->retry.expires_after(std::chrono::milliseconds(100));
            port->retry.async_wait([this, port](error_code wait_error) {
              if (!wait_error) Accept(port);
            });
            return;
          }
          const int64_t limit =
              port->admin ? kAdminConnectionsMax : static_cast<int64_t>(options_.connections_max);
          if (shared_.open[port->admin].load() >= limit) {
            TurnAway(std::move(socket));
          } else {
            auto connection = std::make_shared<HttpConnection>(std::move(socket), worker,
                                                               port->routes, port->admin);
            asio::post(worker->io(), [worker, connection] { worker->Add(connection); });
          }
          Accept(port);
        });
  }

  static void TurnAway(tcp::socket socket) {
    static constexpr char kReply[] =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
        "content-type: application/json\r\ncontent-length: 58\r\n\r\n"
        "{\"error\":\"too many connections\",\"error_type\":\"overloaded\"}";
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(kReply, sizeof(kReply) - 1), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  const HttpServerOptions options_;
  HttpShared shared_;
  std::vector<std::unique_ptr<HttpWorker>> workers_;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Thread> threads_;
  size_t next_ = 0;
  std::atomic<bool> stopped_{false};
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              const HttpRouter* routes,
                                                              const HttpRouter* admin_routes,
                                                              Probe* probe) {
  auto server = std::make_unique<AsioHttpServer>(options, probe);
  WEFT_RETURN_IF_ERROR(server->Listen(options.host, options.port, false, routes));
  if (options.admin_port.has_value()) {
    WEFT_RETURN_IF_ERROR(
        server->Listen(options.admin_host, *options.admin_port, true, admin_routes));
  }
  server->Run();
  return server;
}

}  // namespace weft::router
