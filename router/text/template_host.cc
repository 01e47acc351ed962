#include "router/text/template_host.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "common/wait_status.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// A server that lived so long was started well.
constexpr absl::Duration kSettled = absl::Seconds(5);
constexpr absl::Duration kRestartDelayMax = absl::Seconds(10);

absl::Status Gone(absl::string_view why) {
  return UnavailableError("TEMPLATES_GONE",
                          absl::StrCat("the process that runs chat templates is gone (", why,
                                       "); it is being started again, and text prompts are served"),
                          absl::Seconds(1));
}

// Sends `socket` to a server; an errno. Does not wait: a server that takes nothing is stopped.
int SendSocket(int control, int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char rights[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = rights;
  message.msg_controllen = sizeof(rights);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &socket, sizeof(int));
  return sendmsg(control, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0 : errno;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TemplateHost>> TemplateHost::Start(TemplateHostOptions options) {
  std::unique_ptr<TemplateHost> host(new TemplateHost(std::move(options)));
  WEFT_ASSIGN_OR_RETURN(host->thread_,
                        Thread::Start("templates", [raw = host.get()] { raw->KeepServer(); }));
  absl::MutexLock lock(&host->mutex_);
  host->mutex_.Await(absl::Condition(
      +[](std::optional<absl::Status>* first) { return first->has_value(); }, &host->first_start_));
  if (!host->first_start_->ok()) return *host->first_start_;
  return host;
}

TemplateHost::~TemplateHost() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    // The end of its socket is the server's end.
    if (server_.control >= 0) close(std::exchange(server_.control, -1));
  }
  thread_.Join();
}

// -- The thread ----------------------------------------------------------------------------------

void TemplateHost::KeepServer() {
  while (true) {
    const absl::Time begin = absl::Now();
    const std::string why = RunServer();
    absl::MutexLock lock(&mutex_);
    if (stopping_ || number_ == 0) return;
    CountEnd(absl::Now() - begin, why);
    const uint32_t doublings = std::min(failures_, 16u);
    const absl::Duration delay =
        std::min(options_.restart_delay * (1u << doublings), kRestartDelayMax);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), delay)) return;
  }
}

std::string TemplateHost::RunServer() {
  const absl::StatusOr<TemplateServer> started =
      StartTemplateServer(options_.program, options_.limits);
  {
    absl::MutexLock lock(&mutex_);
    if (!first_start_.has_value()) first_start_ = started.status();
    if (!started.ok()) return std::string(started.status().message());
    ++number_;
    server_ = *started;
    if (number_ > 1) {
      WEFT_LOG_WARN("the process that runs chat templates was gone ({}); started again as {}", why_,
                    started->pid);
    }
    if (stopping_) close(std::exchange(server_.control, -1));
  }
  int wait_status = 0;
  while (waitpid(started->pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  absl::MutexLock lock(&mutex_);
  if (server_.control >= 0) close(server_.control);
  server_ = TemplateServer();
  return absl::StrCat("it ended with ", DescribeWaitStatus(wait_status));
}

void TemplateHost::CountEnd(absl::Duration lived, const std::string& why) {
  failures_ = lived >= kSettled ? 0 : failures_ + 1;
  why_ = why;
  if (failures_ == kFailuresMax) {
    WEFT_LOG_ERROR(
        "the process that runs chat templates could not be started, or not for long, {} times in a "
        "row: {}; the server is not ready until it runs",
        failures_, why);
  }
}

// -- Any thread ----------------------------------------------------------------------------------

absl::StatusOr<TemplateWorker> TemplateHost::StartWorker() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot make a socket for a chat template: ", strerror(errno)));
  }
  absl::MutexLock lock(&mutex_);
  // A socket that the server has closed was not noticed by the thread yet.
  const int error = server_.control < 0 ? EPIPE : SendSocket(server_.control, sockets[1]);
  close(sockets[1]);
  if (error == 0) return TemplateWorker{sockets[0], number_};
  close(sockets[0]);
  return Gone(strerror(error));
}

absl::Status TemplateHost::CheckServer(uint64_t server) const {
  absl::MutexLock lock(&mutex_);
  if (server != number_ || server_.control < 0) return Gone("with its workers");
  // Its sockets close before its workers die of its end.
  pollfd entry = {server_.control, 0, 0};
  if (poll(&entry, 1, 0) > 0) return Gone("with its workers");
  return absl::OkStatus();
}

absl::Status TemplateHost::Health() const {
  absl::MutexLock lock(&mutex_);
  if (failures_ < kFailuresMax || server_.pid >= 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the process that runs chat templates could not be started, or not for long, ",
                   failures_, " times in a row (", why_, "); it is tried again"));
}

pid_t TemplateHost::server() const {
  absl::MutexLock lock(&mutex_);
  return server_.pid;
}

}  // namespace weft::router
