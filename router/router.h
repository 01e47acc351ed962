// The router process put together: who owns whom, and the order in which they start and stop.
// Made by main and used by its thread only; what it starts has threads of its own.

#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/reloadables.h"
#include "common/shutdown.h"
#include "common/watchdog.h"
#include "router/config_reload.h"
#include "router/core.h"
#include "router/doors/door_context.h"
#include "router/doors/grpc/service.h"
#include "router/doors/http/router.h"
#include "router/doors/http/server.h"
#include "router/doors/identity/file_watch.h"
#include "router/doors/identity/identity.h"
#include "router/doors/ops/timeline_route.h"
#include "router/doors/tls/state.h"
#include "router/flags.h"
#include "router/observe/probe.h"
#include "router/observe/tracer.h"

namespace weft::router {

// What the engine's thread tells the main thread; readable as a descriptor.
class EngineNews {
 public:
  EngineNews() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EngineNews() { close(fd_); }

  // Serving is impossible for good.
  void SetFatal(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (fatal_.ok()) fatal_ = status;
    Wake();
  }
  // The shards serve.
  void SetServing() {
    absl::MutexLock lock(&mutex_);
    serving_ = true;
    Wake();
  }

  absl::Status fatal() const {
    absl::MutexLock lock(&mutex_);
    return fatal_;
  }
  bool serving() const {
    absl::MutexLock lock(&mutex_);
    return serving_;
  }
  int fd() const { return fd_; }
  // Until there is more news fd() is not readable.
  void Read() {
    uint64_t count = 0;
    (void)!read(fd_, &count, sizeof(count));
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    if (write(fd_, &one, sizeof(one)) < 0) WEFT_LOG_ERROR("cannot signal the main thread");
  }

  const int fd_;
  mutable absl::Mutex mutex_;
  absl::Status fatal_ ABSL_GUARDED_BY(mutex_);
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
};

class Router {
 public:
  // Reads keys and certificates; their errors name the file and what is wrong in it.
  static absl::StatusOr<std::unique_ptr<Router>> Create(RouterFlags flags, ShutdownSignals signals);

  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;
  // Stops.
  ~Router() { Stop(); }

  // Opens the ports, then builds the engine behind them.
  absl::Status Start();
  // Serves until a signal or a fatal error; the exit code.
  int Run();
  // Ends what runs with an error that its client hears, then the doors, then what is behind them:
  // nobody calls what has gone. Idempotent; every way out ends here.
  void Stop();

 private:
  Router(RouterFlags flags, ShutdownSignals signals, std::unique_ptr<Identity> identity,
         std::unique_ptr<TlsState> tls);

  // Files that are read again when they change, and on SIGHUP.
  void WatchFiles();
  void WarnOfOpenAddress() const;
  // Says that it is not ready and goes on as before for `shutdown_delay` from `first`, when the
  // signal came.
  void Leave(absl::Time first);
  // Takes no new requests, lets running ones end.
  int Drain();
  // Waits for a signal up to `timeout`; does not return from one that asks to stop a second time.
  void EndAtSecondSignal(absl::Time first, absl::Duration timeout);

  RouterFlags flags_;
  ShutdownSignals signals_;
  const std::unique_ptr<Identity> identity_;
  // Null without TLS.
  const std::unique_ptr<TlsState> tls_;
  Reloadables reloadables_;
  EngineNews news_;
  Probe probe_;
  // Null while it is off. Before the threads that it watches, and behind them.
  std::unique_ptr<Watchdog> watchdog_;
  TimelineRoute timeline_route_;
  // Null while traces are off. Outlives all answers.
  std::unique_ptr<Tracer> tracer_;
  // Outlives the doors, which hold answers of it.
  std::unique_ptr<Core> core_;
  DoorContext doors_;
  HttpRouter routes_;
  HttpRouter admin_routes_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
  // Null without a configuration file.
  std::unique_ptr<ConfigReload> config_;
  // Goes first: it calls identity_, tls_ and config_.
  FileWatch watch_;
};

}  // namespace weft::router
