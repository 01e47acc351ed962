#include "router/text/template_server.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/text/template_worker.h"

// Sanitizers reserve terabytes of address space, which no limit on it would leave them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_LIMIT_ADDRESS_SPACE 0
#else
#define WEFT_LIMIT_ADDRESS_SPACE 1
#endif

namespace weft::router {
namespace {

// The only descriptor beside the standard ones that a server or worker keeps.
constexpr int kSocket = 3;
// What the router's binary is executed with, then its process id and the limits.
constexpr char kArgument[] = "--internal-template-server";
constexpr int kArguments = 5;

absl::Status SystemError(absl::string_view call, int error) {
  return absl::InternalError(
      absl::StrCat("cannot start the process for chat templates: ", call, ": ", strerror(error)));
}

// Leaves a process nothing of the router but `socket`, as descriptor kSocket, and lets it die with
// its parent. Signals that ask the router to drain are not for it.
void Isolate(int socket, pid_t parent, const char* name) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // the parent died before the line above
  prctl(PR_SET_NAME, name);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}) {
    ::signal(signal, SIG_IGN);
  }
  const int null = open("/dev/null", O_RDWR);
  for (const int standard : {0, 1, 2}) dup2(null, standard);
  if (socket != kSocket) dup2(socket, kSocket);
  close_range(kSocket + 1, ~0u, 0);
}

void SetLimit(__rlimit_resource resource, rlim_t value) {
  const rlimit limit = {value, value};
  if (setrlimit(resource, &limit) != 0) _exit(1);
}

// Bytes of address space that this process has now.
size_t AddressSpaceBytes() {
  size_t pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (fscanf(file, "%zu", &pages) != 1) pages = 0;
  fclose(file);
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void LimitWorker(const TemplateLimits& limits) {
  SetLimit(RLIMIT_CORE, 0);
  SetLimit(RLIMIT_FSIZE, 0);
  SetLimit(RLIMIT_MEMLOCK, 0);
  if (WEFT_LIMIT_ADDRESS_SPACE != 0) {
    const size_t used = AddressSpaceBytes();
    if (used == 0) _exit(1);
    SetLimit(RLIMIT_AS, used + limits.memory_bytes);
  }
  // Of two processes that the kernel could end for memory, this one matters less.
  if (FILE* file = fopen("/proc/self/oom_score_adj", "w")) {
    fputs("500", file);
    fclose(file);
  }
}

// Takes the socket of the next worker to fork; -1 when the router is gone.
int ReceiveSocket() {
  while (true) {
    char byte = 0;
    iovec data = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(kSocket, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) continue;
    int socket = -1;
    std::memcpy(&socket, CMSG_DATA(header), sizeof(socket));
    return socket;
  }
}

[[noreturn]] void Serve(const TemplateLimits& limits) {
  signal(SIGCHLD, SIG_IGN);  // dead workers leave no zombies
  const pid_t self = getpid();
  while (true) {
    const int socket = ReceiveSocket();
    if (socket < 0) _exit(0);
    const pid_t worker = fork();
    if (worker == 0) {
      Isolate(socket, self, "weft-template");
      LimitWorker(limits);
      RunTemplateWorker(kSocket, limits.cpu_ms);
      _exit(0);
    }
    close(socket);  // after a failed fork the router sees the end of the stream
  }
}

// Executes `program` with `socket` as descriptor kSocket and no signal blocked; an errno.
int Spawn(const std::string& program, const TemplateLimits& limits, int socket, pid_t* pid) {
  std::string arguments[kArguments] = {"weft-templates", kArgument, absl::StrCat(getpid()),
                                       absl::StrCat(limits.memory_bytes),
                                       absl::StrCat(limits.cpu_ms)};
  char* argv[kArguments + 1] = {};
  for (int i = 0; i < kArguments; ++i) argv[i] = arguments[i].data();
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup release = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn_file_actions_adddup2(&actions, socket, kSocket);
  if (error != 0) return error;
  return posix_spawn(pid, program.c_str(), &actions, &attributes, argv, environ);
}

}  // namespace

absl::StatusOr<TemplateServer> StartTemplateServer(const std::string& program,
                                                   const TemplateLimits& limits) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
    return SystemError("socketpair", errno);
  }
  TemplateServer server;
  server.control = sockets[0];
  const int error = Spawn(program, limits, sockets[1], &server.pid);
  close(sockets[1]);
  if (error == 0) return server;
  close(sockets[0]);
  return SystemError(absl::StrCat("executing ", program), error);
}

void RunTemplateServerIfAsked(int argc, char** argv) {
  if (argc != kArguments || absl::string_view(argv[1]) != kArgument) return;
  pid_t router = 0;
  TemplateLimits limits;
  if (!absl::SimpleAtoi(argv[2], &router) || !absl::SimpleAtoi(argv[3], &limits.memory_bytes) ||
      !absl::SimpleAtoi(argv[4], &limits.cpu_ms)) {
    _exit(1);
  }
  Isolate(kSocket, router, "weft-templates");
  Serve(limits);
}

}  // namespace weft::router
