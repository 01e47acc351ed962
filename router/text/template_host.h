// The processes that compile and render chat templates. A template comes with the model and may be
// hostile: it can ask for any amount of memory, nest until the stack ends, or loop. So it never
// runs in the router: a small server process (template_server.h) forks workers on demand, which
// live under limits of the kernel. Memory without end, a stack overflow or an endless loop kill a
// worker and cost one request; the next one gets a new worker.
//
// A server that ends is started again, after a pause that grows while it ends at once; chats are
// refused in the meantime and everything else goes on. Owned by main, which keeps it longest. All
// methods may be called by any thread; one thread of its own starts the server, waits for its end
// and is its parent for the kernel. Never runs a template itself.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/thread.h"
#include "router/text/template_server.h"

namespace weft::router {

struct TemplateHostOptions {
  TemplateLimits limits;
  // A binary whose main calls RunTemplateServerIfAsked; by default this process's own, also when
  // its file has been replaced or removed.
  std::string program = "/proc/self/exe";
  // Before the first new start; twice as long for each one that fails, up to 10 s.
  absl::Duration restart_delay = absl::Milliseconds(100);
};

// A worker and the server that forked it.
struct TemplateWorker {
  // The router's end of its stream socket (template_channel.h).
  int socket = -1;
  uint64_t server = 0;
};

class TemplateHost {
 public:
  // So many starts in a row that failed, or ended within seconds, are no accident any more.
  static constexpr uint32_t kFailuresMax = 5;

  // Starts the server. INTERNAL with the call that failed; RESOURCE_EXHAUSTED without a thread.
  static absl::StatusOr<std::unique_ptr<TemplateHost>> Start(TemplateHostOptions options = {});
  // The server and its workers end.
  ~TemplateHost();

  TemplateHost(const TemplateHost&) = delete;
  TemplateHost& operator=(const TemplateHost&) = delete;

  // Asks for a new worker. The caller closes its socket; the worker ends then. A worker that could
  // not be forked is a socket that was closed by its other end. UNAVAILABLE with the time to come
  // back when there is no server.
  absl::StatusOr<TemplateWorker> StartWorker();
  // UNAVAILABLE as above when the server of that number is gone, and its workers with it.
  absl::Status CheckServer(uint64_t server) const;
  // UNAVAILABLE, with the reason, while there is no server and kFailuresMax starts have failed.
  absl::Status Health() const;

  const TemplateLimits& limits() const { return options_.limits; }
  // For tests; -1 when there is none.
  pid_t server() const;

 private:
  explicit TemplateHost(TemplateHostOptions options) : options_(std::move(options)) {}

  // The thread: starts servers, one after the other.
  void KeepServer();
  // Starts one and waits for its end; why it ended or could not be started.
  std::string RunServer();
  // What becomes of the count when a server has ended. Logs when there is news.
  void CountEnd(absl::Duration lived, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TemplateHostOptions options_;
  mutable absl::Mutex mutex_;
  // The server's pid and socket; -1 while there is none.
  TemplateServer server_ ABSL_GUARDED_BY(mutex_);
  // Which server this is, or was.
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  // Starts in a row that failed or did not last, and why the last server ended.
  uint32_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  // What came of the first start.
  std::optional<absl::Status> first_start_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Last: it uses the others.
  Thread thread_;
};

}  // namespace weft::router
