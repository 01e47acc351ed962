#include "router/doors/http/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/post.hpp"
#include "common/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "common/thread.h"
#include "router/doors/http/listener.h"
#include "router/doors/http/worker.h"

namespace weft::router {
namespace {

namespace asio = boost::asio;

constexpr int64_t kAdminConnectionsMax = 64;
// Descriptors that are not for public HTTP connections: admin port, reserve, files, shards.
constexpr size_t kOtherDescriptors = 256;

// Public connections that the process may hold: half of its descriptors are left to gRPC and to
// everything else.
size_t ConnectionsThatFit(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto descriptors = static_cast<size_t>(limit.rlim_cur);
  const size_t most = descriptors > 2 * kOtherDescriptors ? (descriptors - kOtherDescriptors) / 2
                                                          : std::max<size_t>(descriptors / 4, 1);
  if (wanted > most) {
    WEFT_LOG_WARN(
        "http takes {} connections instead of {}: the limit of open files is {} (ulimit -n)", most,
        wanted, descriptors);
  }
  return std::min(wanted, most);
}

absl::Status CheckOptions(const HttpServerOptions& options) {
  const HttpLimits& limits = options.limits;
  if (limits.bodies_budget() < 2 * limits.body_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bytes of all bodies (", limits.bodies_budget(),
                     ") must be at least twice those of one (", limits.body_bytes_max, ")"));
  }
  return absl::OkStatus();
}

class AsioHttpServer : public HttpServer {
 public:
  AsioHttpServer(const HttpServerOptions& options, Probe* probe) : shared_(options, probe) {
    for (uint32_t i = 0; i < std::max(1u, options.io_threads); ++i) {
      workers_.push_back(std::make_unique<HttpWorker>(&shared_));
      guards_.emplace_back(workers_.back()->io().get_executor());
    }
  }

  ~AsioHttpServer() override { Stop(); }

  absl::Status Listen(HttpListener::Options options, const HttpRouter* routes) {
    auto listener = std::make_unique<HttpListener>(std::move(options), routes, &workers_);
    WEFT_RETURN_IF_ERROR(listener->Listen());
    listeners_.push_back(std::move(listener));
    return absl::OkStatus();
  }

  void Run() {
    for (const std::unique_ptr<HttpListener>& listener : listeners_) listener->Start();
    for (size_t i = 0; i < workers_.size(); ++i) {
      threads_.emplace_back(absl::StrCat("http-", i),
                            [worker = workers_[i].get()] { worker->io().run(); });
    }
  }

  uint16_t port() const override { return listeners_[0]->port(); }
  uint16_t admin_port() const override { return listeners_.size() > 1 ? listeners_[1]->port() : 0; }

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
      for (const std::unique_ptr<HttpListener>& listener : listeners_) listener->Close();
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
  HttpShared shared_;
  std::vector<std::unique_ptr<HttpWorker>> workers_;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards_;
  std::vector<std::unique_ptr<HttpListener>> listeners_;
  std::vector<Thread> threads_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              const HttpRouter* routes,
                                                              const HttpRouter* admin_routes,
                                                              Probe* probe) {
  WEFT_RETURN_IF_ERROR(CheckOptions(options));
  for (const HttpRouter* const served : {routes, admin_routes}) {
    for (const absl::string_view name : served->RouteNames()) probe->HttpRoute(name);
  }
  auto server = std::make_unique<AsioHttpServer>(options, probe);
  HttpListener::Options listen;
  listen.host = options.host;
  listen.port = options.port;
  listen.connections_max = static_cast<int64_t>(ConnectionsThatFit(options.connections_max));
  listen.tls_context = options.tls_context;
  WEFT_RETURN_IF_ERROR(server->Listen(std::move(listen), routes));
  if (options.admin_port.has_value()) {
    HttpListener::Options admin;
    admin.host = options.admin_host;
    admin.port = *options.admin_port;
    admin.admin = true;
    admin.connections_max = kAdminConnectionsMax;
    admin.tls_context = options.admin_tls_context;
    WEFT_RETURN_IF_ERROR(server->Listen(std::move(admin), admin_routes));
  }
  server->Run();
  return server;
}

}  // namespace weft::router
