// An HTTP server whose answers the test makes, or never makes.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "router/doors/http/server.h"
#include "router/doors/http/sse.h"

namespace weft::router {

// A server with one route, POST /hold, whose answer the test makes.
struct HoldServer {
  struct Exchange : HttpExchange {
    void OnWake() override {}
    void OnSilence() override {
      if (!begun) responder->BeginStream(SseReply());
      begun = true;
      std::string out;
      SseComment(&out);
      responder->Write(out);
      responder->Flush();
    }
    void OnGone(CancelReason why) override {
      absl::MutexLock lock(&owner->mutex);
      owner->gone = why;
    }
    HttpResponder* responder = nullptr;
    HoldServer* owner = nullptr;
    bool begun = false;
  };

  explicit HoldServer(const HttpServerOptions& options) {
    routes.Add(HttpMethod::kPost, "/hold",
               [this](HttpRequest got, HttpResponder& responder, IoWaker&) {
                 auto exchange = std::make_shared<Exchange>();
                 exchange->responder = &responder;
                 exchange->owner = this;
                 absl::MutexLock lock(&mutex);
                 request = std::move(got);
                 return exchange;
               });
    auto started = HttpServer::Start(options, &routes, &routes, &probe);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~HoldServer() { server->Stop(); }

  HttpRequest TakeRequest() {
    absl::MutexLock lock(&mutex);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return !request.path.empty(); };
    mutex.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(10));
    return std::move(request);
  }
  bool WaitGone() {
    absl::MutexLock lock(&mutex);
    const auto left = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return gone.has_value(); };
    return mutex.AwaitWithTimeout(absl::Condition(&left), absl::Seconds(10));
  }

  Probe probe;
  HttpRouter routes;
  absl::Mutex mutex;
  HttpRequest request ABSL_GUARDED_BY(mutex);
  std::optional<CancelReason> gone ABSL_GUARDED_BY(mutex);
  std::unique_ptr<HttpServer> server;
};

}  // namespace weft::router
