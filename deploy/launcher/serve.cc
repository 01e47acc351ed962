// weft serve: one router, N shards, one supervisor, until SIGTERM or Ctrl-C.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "common/cgroup.h"
#include "common/exit_code.h"
#include "common/flags.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/config_watch.h"
#include "deploy/launcher/last_words.h"
#include "deploy/launcher/orphans.h"
#include "deploy/launcher/pull_model.h"
#include "deploy/launcher/run_command.h"
#include "deploy/launcher/run_dir.h"
#include "deploy/launcher/serve_options.h"
#include "deploy/launcher/shard_count.h"
#include "deploy/launcher/shard_progress.h"
#include "deploy/launcher/supervisor.h"

namespace weft::launcher {
namespace {

// Everything runs on the main thread, and nothing on it waits: not for a child, not for stderr.
class Server {
 public:
  // `flags` were parsed into `options` and outlive this. `model` is what ResolveModel gave,
  // `model_name` that of a hub's model. `arguments` are what they were parsed from.
  Server(const Flags& flags, std::vector<std::string> arguments, ServeOptions options,
         std::string model, std::string model_name, ShutdownSignals signals)
      : flags_(flags),
        arguments_(std::move(arguments)),
        options_(std::move(options)),
        json_(options_.router.log_format == "json"),
        terminal_(!json_ && isatty(STDERR_FILENO) != 0),
        signals_(std::move(signals)),
        signal_descriptor_(io_, dup(signals_.fd())),
        progress_(options_.all_shards()) {
    places_.model = std::move(model);
    places_.model_name = std::move(model_name);
  }

  absl::Status Start() {
    WEFT_ASSIGN_OR_RETURN(places_.router_binary, SiblingBinary("weft-router"));
    WEFT_ASSIGN_OR_RETURN(places_.shard_binary, SiblingBinary("weft-shard"));
    WEFT_ASSIGN_OR_RETURN(run_dir_, RunDir::Create(RunDir::DefaultParents()));
    places_.run_dir = run_dir_->path();
    if (!flags_.reload_path().empty()) {
      config_.emplace(arguments_, flags_, RouterConfigPath(run_dir_->path()));
      WEFT_RETURN_IF_ERROR(config_->WriteForRouter(flags_));
      LookAtConfig();
    }

    SupervisorOptions supervisor_options;
    supervisor_options.socket_path = run_dir_->path() + "/supervisor.sock";
    supervisor_options.router_stop_timeout =
        absl::Seconds(options_.router.shutdown_delay_s + options_.router.drain_timeout_s + 10);
    Supervisor::Callbacks callbacks;
    callbacks.on_line = [this](const std::string& child, const std::string& line, bool is_stdout) {
      OnLine(child, line, is_stdout);
    };
    callbacks.on_hopeless = [this](const std::string& child, const std::string& how,
                                   const std::string& why) { OnHopeless(child, how, why); };
    callbacks.on_stopped = [this](bool drained) {
      if (!drained && exit_code_ == kExitOk) exit_code_ = kExitCut;
      // Whoever looks for the reason reads the last line, and others have written meanwhile.
      if (!no_start_.empty()) WEFT_LOG_ERROR("{}", no_start_);
      io_.stop();
    };
    supervisor_ =
        std::make_unique<Supervisor>(io_, std::move(supervisor_options), std::move(callbacks));
    WEFT_RETURN_IF_ERROR(supervisor_->Start(ShardSpecs(flags_, options_, places_, environ),
                                            RouterSpec(flags_, options_, places_, environ)));
    WaitForSignal();
    // In a container.
    if (getpid() == 1) {
      orphans_.emplace(io_, [this](pid_t pid) { return supervisor_ && supervisor_->Owns(pid); });
    }
    return absl::OkStatus();
  }

  int Run() {
    io_.run();
    supervisor_.reset();
    return exit_code_;
  }

 private:
  // The router says two things on stdout: "listening http=HOST:PORT grpc=HOST:PORT ..." and
  // "ready".
  void OnLine(const std::string& child, const std::string& line, bool is_stdout) {
    if (is_stdout && child == "router") {
      if (absl::StartsWith(line, "listening ")) {
        KeepPorts(line);
        return;
      }
      if (line == "ready") {
        OnReady();
        return;
      }
    }
    if (is_stdout && OnShardLine(child, line)) return;
    ClearProgress();
    // The lines of our own log carry the name already.
    const bool named =
        json_ ? IsJsonObject(line) : absl::StrContains(line, absl::StrCat(" ", child, ": "));
    if (named) {
      LogRaw(absl::StrCat(line, "\n"));
    } else if (json_) {
      // No line of our log: the reason why a child did not start, or a library's complaint. It is
      // shown at every level, as it is in text.
      WEFT_LOG_ERROR("{}: {}", child, line);
    } else {
      LogRaw(absl::StrFormat("%-8s| %s\n", child, line));
    }
  }

  // What a shard prints is for the launcher: where it listens and shows its metrics, which its log
  // says too, and how far its load is.
  bool OnShardLine(const std::string& child, const std::string& line) {
    if (absl::StartsWith(line, "listening ") || absl::StartsWith(line, "metrics on ")) return true;
    absl::string_view rank_text = child;
    size_t rank = 0;
    if (!absl::ConsumePrefix(&rank_text, "shard-") || !absl::SimpleAtoi(rank_text, &rank) ||
        !progress_.OnLine(rank, line)) {
      return false;
    }
    if (!ready_ && !stopping_) ShowProgress();
    return true;
  }

  // Port 0 is resolved once and kept across restarts of the router.
  void KeepPorts(const std::string& line) {
    for (absl::string_view word : absl::StrSplit(line, ' ')) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(word, absl::MaxSplits('=', 1));
      const size_t colon = pair.second.rfind(':');
      uint32_t port = 0;
      if (colon == absl::string_view::npos ||
          !absl::SimpleAtoi(pair.second.substr(colon + 1), &port)) {
        continue;
      }
      if (pair.first == "http") options_.router.http_port = static_cast<uint16_t>(port);
      if (pair.first == "grpc") options_.router.grpc_port = static_cast<uint16_t>(port);
    }
    supervisor_->SetRouterArgv(RouterSpec(flags_, options_, places_, environ).argv);
  }

  void OnReady() {
    supervisor_->MarkHealthy();
    ready_ = true;
    ClearProgress();
    // For scripts: the one line on stdout.
    PrintLine(absl::StrCat("ready http=", HostPort(options_.router.host, options_.router.http_port),
                           " grpc=", HostPort(options_.router.host, options_.router.grpc_port)));
  }

  void OnHopeless(const std::string& child, const std::string& how, const std::string& why) {
    ClearProgress();
    no_start_ = absl::StrCat(child, " could not start (", how, ")");
    WEFT_LOG_ERROR("{}; stopping", no_start_);
    if (!why.empty()) absl::StrAppend(&no_start_, ": ", why);
    exit_code_ = kExitStartup;
    supervisor_->Stop();
    supervisor_->Stop();
  }

  void LookAtConfig() {
    config_timer_.expires_after(std::chrono::seconds(1));
    config_timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      config_->Look();
      LookAtConfig();
    });
  }

  void WaitForSignal() {
    signal_descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                  [this](const boost::system::error_code& error) {
                                    if (error) return;
                                    if (const auto number = signals_.Wait(absl::ZeroDuration())) {
                                      OnSignal(*number);
                                    }
                                    WaitForSignal();
                                  });
  }

  void OnSignal(int number) {
    ClearProgress();
    if (signals_.IsReload(number)) {
      // Keys and certificates are the router's; shards have no files that change.
      if (config_.has_value()) config_->Reload();
      supervisor_->SignalRouter(SIGHUP);
      return;
    }
    WEFT_LOG_INFO("{}", stopping_ ? "stopping at once" : DrainText(strsignal(number)));
    if (stopping_) exit_code_ = kExitCut;
    stopping_ = true;
    supervisor_->Stop();
  }

  std::string DrainText(absl::string_view signal) const {
    const double delay_s = options_.router.shutdown_delay_s;
    return absl::StrCat(
        signal, ": ", delay_s > 0 ? absl::StrCat("taking requests for ", delay_s, " s, then ") : "",
        "finishing running requests (up to ", options_.router.drain_timeout_s,
        " s); once more stops at once");
  }

  void ShowProgress() {
    const std::string line = progress_.Line();
    if (line == shown_) return;
    if (terminal_) {
      LogRaw(absl::StrCat("\r\033[K", line));
      shown_ = line;
    } else if (absl::Now() - last_line_ >= absl::Seconds(1)) {
      // Without a terminal: a line when something changed, at most each second.
      WEFT_LOG_INFO("{}", line);
      last_line_ = absl::Now();
      shown_ = line;
    }
  }

  void ClearProgress() {
    if (!shown_.empty() && terminal_) LogRaw("\r\033[K");
    shown_.clear();
  }

  const Flags& flags_;
  const std::vector<std::string> arguments_;
  ServeOptions options_;
  const bool json_;
  const bool terminal_;
  ShutdownSignals signals_;
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor signal_descriptor_;
  ShardProgress progress_;
  std::unique_ptr<RunDir> run_dir_;
  ServePlaces places_;
  // None without a configuration file.
  std::optional<ConfigWatch> config_;
  boost::asio::steady_timer config_timer_{io_};
  std::unique_ptr<Supervisor> supervisor_;
  std::optional<OrphanReaper> orphans_;
  // The progress line that stands on the terminal, or was logged last.
  std::string shown_;
  absl::Time last_line_ = absl::InfinitePast();
  // Which child could not start, and why; empty when none was given up.
  std::string no_start_;
  bool ready_ = false;
  bool stopping_ = false;
  int exit_code_ = kExitOk;
};

constexpr uint32_t kRetriesWithModel = 2;

// With --pull: fetches the model. A hub that cannot be reached does not keep a model from being
// served that was pulled before.
absl::Status PullFirst(const ServeOptions& options) {
  const absl::optional<hub::ModelId> id = HubModel(options.model);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pull: --model `", options.model,
                     "` is no model of a hub; expected org/name or org/name@revision"));
  }
  hub::PullOptions pull;
  pull.id = *id;
  pull.include = options.pull_include;
  // Where a model can be served already, a hub that is away is not waited for.
  if (ResolveModel(options).ok()) pull.transfer.retries = kRetriesWithModel;
  const absl::Status status =
      PullModel(pull, options.router.log_format == "json" ? PullOutput::kLog : PullOutput::kPlain)
          .status();
  if (!absl::IsUnavailable(status)) return Annotate(status, "--pull");
  const absl::StatusOr<std::string> pulled = ResolveModel(options);
  if (!pulled.ok()) return Annotate(status, "--pull");
  WEFT_LOG_WARN("--pull: {}; serving what was pulled before: {}", std::string(status.message()),
                *pulled);
  return absl::OkStatus();
}

}  // namespace

int RunServe(int argc, char** argv) {
  ServeOptions options;
  Flags flags("weft serve", "Starts a router and its shards on this host and keeps them alive.");
  DeclareServeFlags(flags, &options);
  int exit_code = kExitOk;
  const int outcome = RunCommand(flags, argc, argv, [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const LogFormat format, ParseLogFormat(options.router.log_format));
    // Of the smallest server: in less not even the model's headers can be read. Numbers of shards
    // that cannot be are named before what they would take.
    const MemoryLimit memory = HostMemoryLimit("");
    WEFT_RETURN_IF_ERROR(CheckProcessMemory(memory, ServeOptions()));
    WEFT_RETURN_IF_ERROR(InitLogging("weft", format, options.router.log_level));
    if (options.pull) WEFT_RETURN_IF_ERROR(PullFirst(options));
    WEFT_ASSIGN_OR_RETURN(const std::string model, ResolveModel(options));
    WEFT_RETURN_IF_ERROR(CheckShardCount(model, options));
    WEFT_RETURN_IF_ERROR(CheckProcessMemory(memory, options));
    WEFT_ASSIGN_OR_RETURN(ShutdownSignals signals, ShutdownSignals::Create(Hangup::kReloads));
    for (const auto& unknown : flags.UnknownVariables(environ)) WEFT_LOG_WARN("{}", unknown.Line());
    if (options.model.empty()) {
      WEFT_LOG_INFO(
          "no model was named: this is the demo model, {}; --model DIR_OR_GGUF serves "
          "another",
          model);
    }
    const absl::optional<hub::ModelId> id = HubModel(options.model);
    Server server(flags, std::vector<std::string>(argv, argv + argc), std::move(options), model,
                  id.has_value() ? id->repository() : "", std::move(signals));
    WEFT_RETURN_IF_ERROR(server.Start());
    exit_code = server.Run();
    return absl::OkStatus();
  });
  return outcome != kExitOk ? outcome : exit_code;
}

}  // namespace weft::launcher
