// The server of template workers: a process of one thread that forks a worker for every socket it
// is sent. It is the router's own binary, executed with an internal argument: the router has
// threads when it starts one, and a process with threads can execute but not just fork. Each worker
// lives under limits of the kernel (address space, processor time, no core file, no files to
// write). Here are both ends of the start; TemplateHost decides when.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft::router {

struct TemplateLimits {
  // Address space of a worker beyond what it has when it starts.
  size_t memory_bytes = 256u << 20;
  // Processor time of one call (compile or render).
  uint32_t cpu_ms = 1500;
};

struct TemplateServer {
  // The caller waits for it.
  pid_t pid = -1;
  // The caller closes it, and the server ends. A message of one byte with a stream socket as its
  // right asks for a worker that serves this socket.
  int control = -1;
};

// Starts a server: executes `program`, whose main calls RunTemplateServerIfAsked. The server and
// its workers die with the calling thread. INTERNAL with the call that failed.
absl::StatusOr<TemplateServer> StartTemplateServer(const std::string& program,
                                                   const TemplateLimits& limits);

// For the first line of main: when StartTemplateServer has executed this process, serves and never
// returns.
void RunTemplateServerIfAsked(int argc, char** argv);

}  // namespace weft::router
