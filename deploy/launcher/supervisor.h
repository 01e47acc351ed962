// Keeps the children of `weft serve` alive: starts shards and router, restarts one that dies (with
// a back-off when it dies young), and serves the supervisor socket through which the router asks
// for a restart and hears of deaths. Lives on the launcher's main thread, driven by its io_context.
//
// The socket's protocol is stated in router/shards/supervisor_client.h, whose client is the only
// one: the router asks "restart <rank> <pid> <reason>", the supervisor answers "ok" or "error
// <text>" and pushes "died <rank> <pid> [why]" when a shard's process is gone: why one cannot
// start, in its words.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "boost/asio/io_context.hpp"
#include "deploy/launcher/restart_policy.h"

namespace weft::launcher {

// What to run; argv[0] is the binary's path.
struct ChildSpec {
  // "router" or "shard-<rank>"; prefix of its lines.
  std::string name;
  std::vector<std::string> argv;
  // "NAME=value" of its whole environment.
  std::vector<std::string> environment;
  // It is told which launcher starts it, and for which time: --launcher-id, --launcher-generation.
  bool numbered = false;
};

struct SupervisorOptions {
  std::string socket_path;
  RestartTimes restart;
  // SIGTERM to a shard is followed by SIGKILL after this.
  absl::Duration shard_stop_timeout = absl::Seconds(5);
  // And to the router: its own drain time-out and a margin.
  absl::Duration router_stop_timeout = absl::Seconds(100);
};

class Supervisor {
 public:
  struct Callbacks {
    // A line of a child's output.
    absl::AnyInvocable<void(const std::string& child, const std::string& line, bool is_stdout)>
        on_line;
    // A child came to an end that a restart cannot mend (restart_policy.h), or could not be started
    // at all before MarkHealthy. `why` is what it said of it itself, empty when it said nothing.
    // Called at most once; Stop follows from the owner.
    absl::AnyInvocable<void(const std::string& child, const std::string& how,
                            const std::string& why)>
        on_hopeless;
    // Everything has stopped. `drained`: the router ended as it was told to; false when it died or
    // was killed meanwhile, which cuts off the requests that it still had.
    absl::AnyInvocable<void(bool drained)> on_stopped;
  };

  Supervisor(boost::asio::io_context& io, SupervisorOptions options, Callbacks callbacks);
  ~Supervisor();

  // Listens on the socket, then starts `shards` (rank order) and `router`.
  absl::Status Start(std::vector<ChildSpec> shards, ChildSpec router);

  // From now on an exit of any child leads to a restart: start-up has succeeded.
  void MarkHealthy();
  // Replaces the router's argv for its next start (its ports are known by then).
  void SetRouterArgv(std::vector<std::string> argv);

  // Sends a signal to the router; nothing happens when it is not running.
  void SignalRouter(int signal_number);

  // SIGTERM to the router, which drains; when it has gone, SIGTERM to the shards; then on_stopped.
  // A second call stops everything at once.
  void Stop();

  // 0 when the child is not running.
  pid_t ShardPid(size_t rank) const;
  // Whether this is the process of a shard or of the router, which the supervisor waits for.
  bool Owns(pid_t pid) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace weft::launcher
