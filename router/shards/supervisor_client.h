// Talks to whoever started the shards (`weft serve`), over a Unix stream socket, one line a
// message:
//
//   router -> supervisor   restart <rank> <pid> <reason>\n
//       Kill (SIGKILL), reap and start again the shard of that rank. `pid` is the process the
//       router means: when the rank runs as another process by now, nothing is to be done and the
//       answer is still ok. `reason` is the rest of the line, for people.
//   supervisor -> router   ok\n  or  error <text>\n
//       One per restart, in order, sent once the order is accepted; not when the shard is up.
//   supervisor -> router   died <rank> <pid>\n
//       Pushed to every connection at any time between lines, when a child was seen to exit.
//   supervisor -> router   started <rank> <pid>\n
//       Likewise when its successor runs; the router finds that out by itself.
//
// rank and pid are decimal; a line has at most 1024 bytes. Either side may close and the router
// connects again. Without a supervisor the shard's own liveness probe has it restarted.
//
// Owned by router/serving. Restart may be called from any thread and never blocks; news come on
// this client's own thread.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/thread.h"

namespace weft::router {

// Who can restart a shard; the shard group's view of the supervisor.
class ShardRestarter {
 public:
  virtual ~ShardRestarter() = default;
  // Asks for it; nothing comes back but the shard itself.
  virtual void Restart(Rank rank, uint64_t pid, const std::string& reason) = 0;
};

// A child's exit as the supervisor saw it.
struct ShardDeath {
  Rank rank = 0;
  uint64_t pid = 0;
  // Why it cannot start, in its own words; empty when it ended in another way.
  std::string why{};
};

// The two directions of the protocol as text, for both ends' tests.
std::string RestartLine(Rank rank, uint64_t pid, absl::string_view reason);
// INVALID_ARGUMENT unless `line` (without its end) is "died <rank> <pid> [why]".
absl::Status ParseDiedLine(absl::string_view line, ShardDeath* death);

class SupervisorClient : public ShardRestarter {
 public:
  // Starts the thread, which connects to `socket_path` and stays connected as well as it can.
  // `on_death` is called by that thread and must not block.
  SupervisorClient(std::string socket_path, std::function<void(ShardDeath)> on_death);
  // Stops the thread.
  ~SupervisorClient() override;

  // Queues the order; orders given while there is no connection are sent when there is one. At
  // most kWorldMax wait, one per rank: a newer one replaces an older.
  void Restart(Rank rank, uint64_t pid, const std::string& reason) override;

 private:
  struct Order {
    Rank rank;
    std::string line;
  };

  void Run();
  // One connection, from connect to loss.
  void Serve(int socket_fd);
  // Takes complete lines off `buffer`; false when the peer breaks the protocol.
  bool HandleInput(std::string* buffer);
  // Writes waiting orders; false when the connection is lost.
  bool SendOrders(int socket_fd);
  bool stopping() const;

  const std::string socket_path_;
  const std::function<void(ShardDeath)> on_death_;
  // Readable when orders wait or the client stops (an eventfd).
  int wake_fd_ = -1;
  mutable absl::Mutex mutex_;
  std::vector<Order> orders_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

// The client for `socket_path`; null when it is empty: nobody is there to be asked.
std::unique_ptr<ShardRestarter> MakeSupervisorClient(const std::string& socket_path,
                                                     std::function<void(ShardDeath)> on_death);

}  // namespace weft::router
