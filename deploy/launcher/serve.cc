// weft serve: one router, N shards, one supervisor, until SIGTERM or Ctrl-C.

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "common/flags.h"
#include "common/log.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"
#include "deploy/launcher/serve_options.h"
#include "deploy/launcher/shard_progress.h"
#include "deploy/launcher/supervisor.h"

namespace weft::launcher {
namespace {

// A private folder for the sockets, removed at the end.
class RunDir {
 public:
  static absl::StatusOr<std::unique_ptr<RunDir>> Create() {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    const std::string parent = runtime != nullptr && access(runtime, W_OK) == 0 ? runtime : "/tmp";
    const std::string path = absl::StrCat(parent, "/weft-", getpid());
    if (mkdir(path.c_str(), 0700) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the run directory ", path));
    }
    return std::unique_ptr<RunDir>(new RunDir(path));
  }
  ~RunDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit RunDir(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

class Server {
 public:
  Server(ServeOptions options, ShutdownSignals signals)
      : options_(std::move(options)),
        json_(options_.log_format == "json"),
        signals_(std::move(signals)),
        signal_descriptor_(io_, dup(signals_.fd())),
        progress_timer_(io_) {}

  absl::Status Start() {
    WEFT_ASSIGN_OR_RETURN(model_, ResolveModel(options_));
    WEFT_ASSIGN_OR_RETURN(router_binary_, SiblingBinary("weft-router"));
    WEFT_ASSIGN_OR_RETURN(const std::string shard_binary, SiblingBinary("weft-shard"));
    WEFT_ASSIGN_OR_RETURN(run_dir_, RunDir::Create());

    SupervisorOptions supervisor_options;
    supervisor_options.socket_path = run_dir_->path() + "/supervisor.sock";
    supervisor_options.router_stop_timeout = absl::Seconds(options_.drain_timeout_s + 10);
    Supervisor::Callbacks callbacks;
    callbacks.on_line = [this](const std::string& child, const std::string& line, bool is_stdout) {
      OnLine(child, line, is_stdout);
    };
    callbacks.on_hopeless = [this](const std::string& child, const std::string& how) {
      OnHopeless(child, how);
    };
    callbacks.on_stopped = [this] { io_.stop(); };
    supervisor_ =
        std::make_unique<Supervisor>(io_, std::move(supervisor_options), std::move(callbacks));
    WEFT_RETURN_IF_ERROR(
        supervisor_->Start(ShardSpecs(options_, shard_binary, model_, run_dir_->path()),
                           RouterSpec(options_, router_binary_, model_, run_dir_->path())));
    std::vector<std::string> sockets;
    for (uint32_t rank = 0; rank < options_.shards; ++rank) {
      sockets.push_back(ShardSocketPath(run_dir_->path(), rank));
    }
    progress_ = std::make_unique<ShardProgress>(std::move(sockets));
    ShowProgress();
    WaitForSignal();
    return absl::OkStatus();
  }

  int Run() {
    io_.run();
    progress_.reset();
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
    // A shard says on stdout where it listens; its log says so too.
    if (is_stdout && absl::StartsWith(line, "listening ")) return;
    ClearProgress();
    // The lines of our own log carry the name already.
    const bool named = json_ ? absl::StartsWith(line, "{")
                             : absl::StrContains(line, absl::StrCat(" ", child, ": "));
    if (named) {
      std::fprintf(stderr, "%s\n", line.c_str());
    } else if (json_) {
      WEFT_LOG_INFO("{}: {}", child, line);
    } else {
      std::fprintf(stderr, "%-8s| %s\n", child.c_str(), line.c_str());
    }
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
      if (pair.first == "http") options_.http_port = static_cast<uint16_t>(port);
      if (pair.first == "grpc") options_.grpc_port = static_cast<uint16_t>(port);
    }
    supervisor_->SetRouterArgv(RouterSpec(options_, router_binary_, model_, run_dir_->path()).argv);
  }

  void OnReady() {
    supervisor_->MarkHealthy();
    progress_timer_.cancel();
    progress_.reset();
    ClearProgress();
    // For scripts: the one line on stdout.
    std::printf("ready http=%s:%u grpc=%s:%u\n", options_.host.c_str(), options_.http_port,
                options_.host.c_str(), options_.grpc_port);
    std::fflush(stdout);
  }

  void OnHopeless(const std::string& child, const std::string& how) {
    ClearProgress();
    WEFT_LOG_ERROR("{} could not start ({}); stopping", child, how);
    exit_code_ = 1;
    supervisor_->Stop();
    supervisor_->Stop();
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
    WEFT_LOG_INFO(
        "{}", stopping_ ? "stopping at once"
                        : absl::StrCat(strsignal(number), ": finishing running requests (up to ",
                                       options_.drain_timeout_s, " s); once more stops at once"));
    stopping_ = true;
    progress_timer_.cancel();
    supervisor_->Stop();
  }

  void ShowProgress() {
    const std::string line = progress_ ? progress_->Line() : "";
    if (!line.empty() && line != shown_) {
      if (json_ || isatty(STDERR_FILENO) == 0) {
        // Without a terminal: a line when something changed, at most each second.
        if (absl::Now() - last_line_ >= absl::Seconds(1)) {
          WEFT_LOG_INFO("{}", line);
          last_line_ = absl::Now();
          shown_ = line;
        }
      } else {
        std::fprintf(stderr, "\r\033[K%s", line.c_str());
        shown_ = line;
      }
    }
    progress_timer_.expires_after(std::chrono::milliseconds(100));
    progress_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) ShowProgress();
    });
  }

  void ClearProgress() {
    if (!shown_.empty() && !json_ && isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
    shown_.clear();
  }

  ServeOptions options_;
  const bool json_;
  ShutdownSignals signals_;
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor signal_descriptor_;
  boost::asio::steady_timer progress_timer_;
  std::string model_;
  std::string router_binary_;
  std::unique_ptr<RunDir> run_dir_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<ShardProgress> progress_;
  std::string shown_;
  absl::Time last_line_ = absl::InfinitePast();
  bool stopping_ = false;
  int exit_code_ = 0;
};

}  // namespace

int RunServe(int argc, char** argv) {
  ServeOptions options;
  Flags flags("weft serve", "Starts a router and its shards on this host and keeps them alive.");
  DeclareServeFlags(flags, &options);
  int exit_code = 0;
  const int outcome = RunCommand(flags, argc, argv, [&]() -> absl::Status {
    // The file was read here and its values are passed on; to the children its other keys are
    // unknown.
    unsetenv("WEFT_CONFIG");
    WEFT_ASSIGN_OR_RETURN(const LogFormat format, ParseLogFormat(options.log_format));
    WEFT_RETURN_IF_ERROR(InitLogging("weft", format, options.log_level));
    WEFT_ASSIGN_OR_RETURN(ShutdownSignals signals, ShutdownSignals::Create());
    Server server(std::move(options), std::move(signals));
    WEFT_RETURN_IF_ERROR(server.Start());
    exit_code = server.Run();
    return absl::OkStatus();
  });
  return outcome != 0 ? outcome : exit_code;
}

}  // namespace weft::launcher
