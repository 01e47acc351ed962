// weft-router: opens its ports at once, then loads tokenizer and shard group behind them, serves,
// and drains on SIGTERM. The main thread starts everything and then waits for a signal.

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "common/version.h"
#include "router/doors/front.h"
#include "router/doors/grpc/service.h"
#include "router/doors/http/server.h"
#include "router/doors/openai/routes.h"
#include "router/doors/ops/routes.h"
#include "router/doors/tgi/routes.h"
#include "router/engine_intake.h"
#include "router/flags.h"
#include "router/late_intake.h"
#include "router/observe/probe.h"

namespace weft::router {
namespace {

constexpr int kExitStartup = 1;
// Requests were cut off: a second signal came.
constexpr int kExitCut = 2;
constexpr int kExitFatal = 3;
// For answers that are complete to leave their sockets.
constexpr absl::Duration kFlushTimeout = absl::Seconds(1);

// The engine's word that serving is impossible for good; readable as a descriptor.
class Fatal {
 public:
  Fatal() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Fatal() { close(fd_); }

  void Set(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
    const uint64_t one = 1;
    if (write(fd_, &one, sizeof(one)) < 0) WEFT_LOG_ERROR("cannot signal the main thread");
  }

  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

class Router {
 public:
  Router(RouterFlags flags, ShutdownSignals signals)
      : flags_(std::move(flags)),
        signals_(std::move(signals)),
        front_(&intake_, &probe_, flags_.front) {
    AddTgiRoutes(&front_, &routes_);
    AddOpenAiRoutes(&front_, &routes_);
    if (flags_.public_ops) {
      AddOpsRoutes(&front_, &routes_);
    } else {
      AddMetricsRoute(&front_, &routes_);
    }
    AddOpsRoutes(&front_, &admin_routes_);
  }

  // Opens the ports, then builds the engine behind them.
  absl::Status Start() {
    WEFT_ASSIGN_OR_RETURN(http_, HttpServer::Start(flags_.http, &routes_, &admin_routes_, &probe_));
    WEFT_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(flags_.grpc, &front_));
    // For scripts and `weft serve`: one line, once.
    std::string line = absl::StrCat("listening http=", flags_.http.host, ":", http_->port(),
                                    " grpc=", flags_.http.host, ":", grpc_->port());
    if (http_->admin_port() != 0) {
      absl::StrAppend(&line, " admin=", flags_.http.admin_host, ":", http_->admin_port());
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    flags_.engine.on_fatal = [this](const absl::Status& status) { fatal_.Set(status); };
    WEFT_ASSIGN_OR_RETURN(engine_, CreateEngineIntake(flags_.engine, &probe_));
    intake_.Set(engine_.get());
    return absl::OkStatus();
  }

  // Serves until a signal or a fatal error; the exit code.
  int Run() {
    bool ready = false;
    while (true) {
      pollfd fds[2] = {{signals_.fd(), POLLIN, 0}, {fatal_.fd(), POLLIN, 0}};
      poll(fds, 2, ready ? -1 : 5);
      if (!fatal_.status().ok()) {
        WEFT_LOG_ERROR("cannot serve any more: {}", std::string(fatal_.status().message()));
        return kExitFatal;
      }
      if (signals_.Wait(absl::ZeroDuration()).has_value()) return Drain();
      if (!ready && intake_.Status().state == ServerState::kReady) {
        ready = true;
        std::printf("ready\n");
        std::fflush(stdout);
      }
    }
  }

 private:
  // Takes no new requests, lets running ones end.
  int Drain() {
    WEFT_LOG_INFO("shutting down: running requests have {} s",
                  absl::ToDoubleSeconds(flags_.drain_timeout));
    front_.StartDrain();
    grpc_->StartDrain();
    http_->StartDrain();
    engine_->StartDrain(flags_.drain_timeout);
    const absl::Time end = absl::Now() + flags_.drain_timeout;
    while (!engine_->WaitIdle(absl::Milliseconds(20)) && absl::Now() < end) {
      if (signals_.Wait(absl::ZeroDuration()).has_value()) {
        WEFT_LOG_WARN("second signal: stopping at once");
        std::_Exit(kExitCut);
      }
    }
    engine_->Shutdown();  // what is left fails with UNAVAILABLE, so that its client hears why
    http_->WaitIdle(kFlushTimeout);
    http_->Stop();
    grpc_->Stop(kFlushTimeout);
    return EXIT_SUCCESS;
  }

  RouterFlags flags_;
  ShutdownSignals signals_;
  Fatal fatal_;
  Probe probe_;
  LateIntake intake_;
  Front front_;
  HttpRouter routes_;
  HttpRouter admin_routes_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
  // Goes first: its threads call the servers' wakers.
  std::unique_ptr<Engine> engine_;
};

int Main(int argc, char** argv) {
  RouterFlags flags;
  std::string help_text;
  absl::Status status = ParseRouterFlags(argc, argv, &flags, &help_text);
  if (status.ok() && !help_text.empty()) {
    std::fputs(help_text.c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (status.ok()) status = InitLogging("router", flags.log_format, flags.log_level);
  if (status.ok() && flags.die_with_parent) status = DieWithParent();
  absl::StatusOr<ShutdownSignals> signals = ShutdownSignals::Create();
  if (status.ok()) status = signals.status();
  if (!status.ok()) {
    std::fprintf(stderr, "weft-router: %s\n", std::string(status.message()).c_str());
    return kExitStartup;
  }
  WEFT_LOG_INFO("weft-router {} ({}) model={} shards={}", Version(), Revision(), flags.model_label,
                flags.engine.shards.size());
  // Before the first metric: every series carries them.
  SetMetricLabels({{"model_name", flags.model_label}, {"engine", "0"}});
  Router router(std::move(flags), *std::move(signals));
  status = router.Start();
  if (!status.ok()) {
    WEFT_LOG_ERROR("{}", std::string(status.message()));
    return kExitStartup;
  }
  return router.Run();
}

}  // namespace
}  // namespace weft::router

int main(int argc, char** argv) {
  // Debian's Abseil records the order of every lock taken; that is for debugging and costs a
  // twentieth of this process's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return weft::router::Main(argc, argv);
}
