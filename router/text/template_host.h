// The processes that compile and render chat templates. A template comes with the model and may be
// hostile: it can ask for any amount of memory, nest until the stack ends, or loop. So it never
// runs in the router: a small server process, forked from the router's main thread before any other
// thread exists, forks workers on demand, and each worker lives under limits of the kernel (address
// space, processor seconds, no core file, no files to write). Memory without end, a stack overflow
// or an endless loop kill a worker and cost one request; the next one gets a new worker.
//
// Owned by main, which makes it first of all and keeps it longest. StartWorker may be called by any
// thread. Never runs a template itself, never restarts the server: without one chats are refused
// and everything else goes on.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace weft::router {

struct TemplateLimits {
  // Address space of a worker beyond what it has when it starts.
  size_t memory_bytes = 256u << 20;
  // Of one call (compile or render), rounded up by the kernel's clock to one more at most.
  uint32_t cpu_seconds = 3;
};

class TemplateHost {
 public:
  // Forks the server. REQUIRES: the process has one thread. INTERNAL with the call that failed.
  static absl::StatusOr<std::unique_ptr<TemplateHost>> Fork(const TemplateLimits& limits = {});
  // The server and its workers end.
  ~TemplateHost();

  TemplateHost(const TemplateHost&) = delete;
  TemplateHost& operator=(const TemplateHost&) = delete;

  // Asks for a new worker. The router's end of its stream socket (template_channel.h), which the
  // caller closes; the worker ends then. A worker that could not be forked is a socket that was
  // closed by its other end. UNAVAILABLE when the server is gone.
  absl::StatusOr<int> StartWorker();

  const TemplateLimits& limits() const { return limits_; }
  // For tests.
  pid_t server() const { return server_; }

 private:
  TemplateHost(const TemplateLimits& limits, pid_t server, int control)
      : limits_(limits), server_(server), control_(control) {}

  const TemplateLimits limits_;
  const pid_t server_;
  const int control_;
};

}  // namespace weft::router
