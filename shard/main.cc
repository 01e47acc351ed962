// weft-shard: one process, one slice of a model. The main thread starts everything and then waits
// for a signal or for the loader's end; see shard/control/executor.h for the threads that work.

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/library_log.h"
#include "common/log.h"
#include "common/model_path.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "common/thread.h"
#include "common/version.h"
#include "common/watchdog.h"
#include "grpc/support/log.h"
#include "shard/comm/interface_name.h"
#include "shard/control/executor.h"
#include "shard/control/handshake_faults.h"
#include "shard/control/probe.h"
#include "shard/control/step_service.h"
#include "shard/flags.h"
#include "shard/model_loading.h"
#include "shard/ops_server.h"

namespace weft::shard {
namespace {

constexpr absl::Duration kDrain = absl::Seconds(2);
// Compute stands behind the router, which shares the cores.
constexpr int kDeviceNice = 1;
// Between two lines of the load's progress.
constexpr int kProgressMs = 100;
// What gRPC starts by itself, and what loads: it aborts the process when it may not.
constexpr uint32_t kLibraryThreads = 12;

// A device thread that shows no life for so much longer than it may wait for other ranks hangs: a
// step of a large model on a slow processor does not take so long.
constexpr absl::Duration kHangGrace = absl::Minutes(5);

// What probes are told. A router ends a group with a rank that hangs, and nothing but a restart
// brings the rank back: /livez is for shards that no launcher looks after.
ShardHealth HealthOf(const Executor& executor, absl::Duration peer_timeout) {
  v1::InfoResponse info;
  executor.Info(&info);
  ShardHealth health;
  health.started = info.state() == v1::SHARD_STATE_READY || info.state() == v1::SHARD_STATE_JOINED;
  health.ready = health.started;
  const absl::Duration age = absl::Microseconds(info.heartbeat_age_us());
  health.live = !health.started || age < peer_timeout + kHangGrace;
  if (!health.live) {
    health.text =
        absl::StrCat("the device thread shows no life for ", absl::ToInt64Seconds(age), " s");
  } else if (!health.started) {
    health.text = info.state() == v1::SHARD_STATE_FAILED
                      ? absl::StrCat("failed: ", info.error())
                      : absl::StrCat("loading ", info.load().bytes_done(), " of ",
                                     info.load().bytes_total(), " bytes");
  }
  return health;
}

// /metrics and what probes ask, on their own port. Null when it was not asked for.
absl::StatusOr<std::unique_ptr<OpsServer>> StartOps(const ShardFlags& flags,
                                                    const Executor& executor) {
  if (!flags.metrics_port.has_value()) return nullptr;
  OpsServerOptions options;
  options.host = flags.metrics_host;
  options.port = *flags.metrics_port;
  options.health = [&executor, patience = flags.peer_timeout] {
    return HealthOf(executor, patience);
  };
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<OpsServer> server, OpsServer::Start(options));
  const std::string where = absl::StrCat("metrics on http://", server->address(), "/metrics");
  PrintLine(where);
  WEFT_LOG_INFO("{}", where);
  return server;
}

// The load, on its own thread; `finished` becomes readable when it has ended.
class Loading {
 public:
  Loading(const ShardFlags& flags, Executor& executor, ShardProbe& probe, LoadProgress& progress)
      : finished_(eventfd(0, EFD_CLOEXEC)),
        thread_("loader", [this, &flags, &executor, &probe, &progress] {
          const absl::Time begin = absl::Now();
          absl::StatusOr<LoadedModel> model = LoadModel(flags, progress, cancel_);
          const absl::Duration elapsed = absl::Now() - begin;
          probe.Loading(progress.bytes_done.load(), progress.bytes_total.load(), elapsed);
          if (model.ok()) {
            probe.Loaded(model->facts.memory());
            if (auto load = model->runner->expert_load()) probe.ShowExperts(std::move(load));
            WEFT_LOG_INFO("loaded {} rank={} of {} in {} ms on {}, {} threads, {}", flags.model,
                          flags.rank, flags.world, absl::ToInt64Milliseconds(elapsed),
                          model->facts.device(), flags.memory.threads, model->isa());
            executor.SetReady(*std::move(model));
          } else {
            executor.SetFailed(model.status());
            status_ = model.status();
          }
          const uint64_t one = 1;
          (void)!write(finished_, &one, sizeof(one));
        }) {}

  ~Loading() {
    cancel_.store(true);
    thread_.Join();
    close(finished_);
  }

  int finished_fd() const { return finished_; }
  // REQUIRES: finished_fd() was readable.
  const absl::Status& status() const { return status_; }

 private:
  const int finished_;
  std::atomic<bool> cancel_{false};
  absl::Status status_;
  Thread thread_;
};

// The load's progress in lines for the launcher (deploy/launcher/shard_progress.h).
class ProgressLines {
 public:
  explicit ProgressLines(const LoadProgress& progress) : progress_(progress) {}

  void Print() const {
    PrintLine(absl::StrCat("loading ", progress_.bytes_done.load(), " ",
                           progress_.bytes_total.load(), " ",
                           absl::ToInt64Microseconds(absl::Now() - begin_)));
  }
  void PrintEnd() const { PrintLine("loaded"); }

 private:
  const LoadProgress& progress_;
  const absl::Time begin_ = absl::Now();
};

// Waits for a signal, or for a load that failed. OK means: a signal came. Prints `lines`, unless
// null, while the load goes on.
absl::Status WaitForEnd(ShutdownSignals& signals, const Loading& loading,
                        const ProgressLines* lines) {
  pollfd entries[2] = {{signals.fd(), POLLIN, 0}, {loading.finished_fd(), POLLIN, 0}};
  int watched = 2;
  for (;;) {
    const bool prints = watched == 2 && lines != nullptr;
    const int ready = poll(entries, static_cast<nfds_t>(watched), prints ? kProgressMs : -1);
    if (ready == 0) lines->Print();
    if (ready <= 0) continue;
    if (entries[0].revents != 0) {
      if (signals.Wait(absl::ZeroDuration()).has_value()) return absl::OkStatus();
    } else if (watched == 2 && entries[1].revents != 0) {
      WEFT_RETURN_IF_ERROR(loading.status());
      if (lines != nullptr) lines->PrintEnd();
      watched = 1;
    }
  }
}

// From here on a signal does what it does by default: it ends the process at once.
void UnblockSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigaddset(&mask, SIGINT);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
}

// NCCL chooses its interface by name and reads it when it starts; who has set it has decided.
absl::Status ChooseNcclInterface(const ShardFlags& flags) {
  if (!flags.gpu.has_value() || flags.comm_host.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::string name, InterfaceName(flags.comm_host));
  setenv("NCCL_SOCKET_IFNAME", absl::StrCat("=", name).c_str(), /*overwrite=*/0);
  WEFT_LOG_INFO("NCCL_SOCKET_IFNAME is {}", std::getenv("NCCL_SOCKET_IFNAME"));
  return absl::OkStatus();
}

absl::Status Serve(const ShardFlags& flags, ShutdownSignals signals) {
  WEFT_RETURN_IF_ERROR(InitLogging(flags.log_name, flags.log_format, flags.log_level));
  for (const auto& unknown : flags.unknown_variables) WEFT_LOG_WARN("{}", unknown.Line());
  if (flags.die_with_parent) WEFT_RETURN_IF_ERROR(DieWithParent());
  WEFT_RETURN_IF_ERROR(Annotate(CheckModelPath(flags.model), "--model"));
  WEFT_RETURN_IF_ERROR(CheckThreadsLeft(flags.memory.threads + kLibraryThreads));
  WEFT_RETURN_IF_ERROR(ChooseNcclInterface(flags));
  ShardProbe probe(flags.model_label, flags.rank);
  const std::unique_ptr<Watchdog> watchdog = Watchdog::Start(
      {flags.watchdog_limit, [&probe](const std::string& /*thread*/) { probe.ThreadStuck(); }});

  LoadProgress progress;
  ExecutorOptions options;
  options.rank = flags.rank;
  options.world = flags.world;
  options.peer_timeout = flags.peer_timeout;
  options.device_nice = kDeviceNice;
  options.probe = &probe;
  options.on_stuck = [](const std::string& why) {
    WEFT_LOG_ERROR("{}", why);
    FlushLogs();
    std::_Exit(kExitStuck);
  };
  options.on_broken_model = [&flags](const std::string& why) {
    LogLastWords(absl::StrCat("weft-shard: ", flags.model, ": ", why));
    std::_Exit(kExitStartup);
  };
  Executor executor(std::move(options), EarlyFacts(flags), progress);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<OpsServer> ops, StartOps(flags, executor));
  ListenOptions listen = flags.listen;
  listen.serving = [&executor, patience = flags.peer_timeout] {
    const ShardHealth health = HealthOf(executor, patience);
    return health.ready && health.live;
  };
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ShardServer> server,
                        ShardServer::Start(listen, executor, &probe));
  PrintLine(absl::StrCat("listening on ", server->address()));
  WEFT_LOG_INFO("weft-shard {} ({}) rank={} of {} on {}", Version(), Revision(), flags.rank,
                flags.world, server->address());
  {
    Loading loading(flags, executor, probe, progress);
    const ProgressLines lines(progress);
    WEFT_RETURN_IF_ERROR(WaitForEnd(signals, loading, flags.load_progress ? &lines : nullptr));
    WEFT_LOG_INFO("stopping; a second signal stops at once");
    UnblockSignals();
    executor.Shutdown(kDrain);
    server->Shutdown(absl::ZeroDuration());
  }
  return absl::OkStatus();
}

// gRPC would write to stderr itself, and wait for it.
void TakeGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    static HandshakeFaults& faults = *new HandshakeFaults();
    const std::string fault = faults.Judge(line->message, MonotonicClock().NowUs());
    if (!fault.empty()) WEFT_LOG_WARN("{}", fault);
    LogLibraryLine("grpc", line->message);
  });
}

int Main(int argc, char** argv) {
  TakeGrpcLog();
  PrepareCudaEnvironment();
  absl::StatusOr<ShutdownSignals> signals = ShutdownSignals::Create(Hangup::kIgnored);
  ShardFlags flags;
  std::string help_text;
  absl::Status status = signals.status();
  if (status.ok()) status = ParseShardFlags(argc, argv, &flags, &help_text);
  if (status.ok() && !help_text.empty()) {
    std::fputs(help_text.c_str(), stdout);
    return kExitOk;
  }
  if (status.ok()) status = Serve(flags, *std::move(signals));
  if (status.ok()) return kExitOk;
  LogLastWords(absl::StrCat("weft-shard: ", status.message()));
  return kExitStartup;
}

}  // namespace
}  // namespace weft::shard

int main(int argc, char** argv) { return weft::shard::Main(argc, argv); }
