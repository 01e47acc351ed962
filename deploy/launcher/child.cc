#include "deploy/launcher/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/read_until.hpp"
#include "common/process_stat.h"

namespace weft::launcher {
namespace {

using boost::asio::posix::stream_descriptor;

// A longer line is cut into pieces of this size.
constexpr size_t kLineBytesMax = 64 << 10;

// In the forked child: only async-signal-safe calls from here to exec.
[[noreturn]] void ExecChild(char* const* argv, char* const* environment, int stdout_fd,
                            int stderr_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Its own process group: a Ctrl-C in the terminal reaches the launcher only, which then drains.
  setpgid(0, 0);
  dup2(stdout_fd, STDOUT_FILENO);
  dup2(stderr_fd, STDERR_FILENO);
  execve(argv[0], argv, environment);
  const char* text = strerrordesc_np(errno);
  (void)!write(STDERR_FILENO, text, strlen(text));
  _exit(127);
}

// With the null at its end that exec wants. Points into `texts`.
std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status CannotStart(int error, const std::string& what) {
  if (error != EAGAIN) return absl::ErrnoToStatus(error, absl::StrCat("starting ", what));
  return absl::ResourceExhaustedError(
      absl::StrCat("starting ", what,
                   ": no more processes are allowed; raise the limit of "
                   "processes and threads (ulimit -u, docker --pids-limit, TasksMax)"));
}

}  // namespace

class Child::Impl : public std::enable_shared_from_this<Child::Impl> {
 public:
  Impl(boost::asio::io_context& io, pid_t pid, int pidfd, int stdout_fd, int stderr_fd,
       Callbacks callbacks)
      : pid_(pid), pidfd_(io, pidfd), callbacks_(std::move(callbacks)) {
    pipes_[0] = std::make_unique<Pipe>(io, stdout_fd);
    pipes_[1] = std::make_unique<Pipe>(io, stderr_fd);
  }

  void Start() {
    for (auto& pipe : pipes_) ReadLine(pipe.get());
    pidfd_.async_wait(stream_descriptor::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        if (!error) self->Reap();
                      });
  }

  void Signal(int signal_number) {
    // Through the pidfd: a pid that was reaped and given to somebody else is never hit.
    if (running_) syscall(SYS_pidfd_send_signal, pidfd_.native_handle(), signal_number, nullptr, 0);
  }

  bool Ended() const {
    if (!running_) return true;
    // What is not reaped keeps its pid. WNOWAIT leaves it to Reap.
    siginfo_t ended = {};
    if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == pid_) {
      return true;
    }
    // Its connections are closed some time before it can be waited for.
    const std::optional<ProcessStat> stat = ReadProcessStat(static_cast<uint64_t>(pid_));
    return !stat.has_value() || stat->ending;
  }

  // The owner is going: no callback from here on.
  void Abandon() {
    callbacks_ = Callbacks();
    if (running_) {
      Signal(SIGKILL);
      int status = 0;
      waitpid(pid_, &status, 0);
      running_ = false;
    }
    boost::system::error_code ignored;
    pidfd_.cancel(ignored);
    for (auto& pipe : pipes_) pipe->descriptor.cancel(ignored);
  }

  pid_t pid() const { return pid_; }

 private:
  struct Pipe {
    Pipe(boost::asio::io_context& io, int fd) : descriptor(io, fd) {}
    stream_descriptor descriptor;
    std::string buffer;
    bool closed = false;
  };

  void ReadLine(Pipe* pipe) {
    boost::asio::async_read_until(
        pipe->descriptor, boost::asio::dynamic_buffer(pipe->buffer, kLineBytesMax), '\n',
        [self = shared_from_this(), pipe](const boost::system::error_code& error, size_t bytes) {
          self->OnRead(pipe, error, bytes);
        });
  }

  void OnRead(Pipe* pipe, const boost::system::error_code& error, size_t bytes) {
    const bool is_stdout = pipe == pipes_[0].get();
    // A full buffer without a newline comes as not_found: hand out what there is.
    const bool cut = error == boost::asio::error::not_found;
    if (cut || (error && !pipe->buffer.empty())) bytes = pipe->buffer.size();
    if (bytes > 0 && callbacks_.on_line) {
      callbacks_.on_line(
          pipe->buffer.substr(0, pipe->buffer[bytes - 1] == '\n' ? bytes - 1 : bytes), is_stdout);
    }
    pipe->buffer.erase(0, bytes);
    if (!error || cut) {
      ReadLine(pipe);
      return;
    }
    pipe->closed = true;
    MaybeReportExit();
  }

  void Reap() {
    if (!running_) return;
    waitpid(pid_, &wait_status_, 0);
    running_ = false;
    MaybeReportExit();
  }

  // The exit is told after the last line, so that the reason is on the screen before it.
  void MaybeReportExit() {
    if (running_ || !pipes_[0]->closed || !pipes_[1]->closed || !callbacks_.on_exit) return;
    auto on_exit = std::move(callbacks_.on_exit);
    callbacks_ = Callbacks();
    on_exit(wait_status_);
  }

  const pid_t pid_;
  stream_descriptor pidfd_;
  std::unique_ptr<Pipe> pipes_[2];
  Callbacks callbacks_;
  bool running_ = true;
  int wait_status_ = 0;
};

absl::StatusOr<std::unique_ptr<Child>> Child::Spawn(boost::asio::io_context& io,
                                                    const std::vector<std::string>& argv,
                                                    const std::vector<std::string>& environment,
                                                    Callbacks callbacks) {
  const std::vector<char*> raw = Pointers(argv);
  const std::vector<char*> raw_environment = Pointers(environment);
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  if (pipe2(err, O_CLOEXEC) != 0) {
    close(out[0]);
    close(out[1]);
    return absl::ErrnoToStatus(errno, "pipe");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) ExecChild(raw.data(), raw_environment.data(), out[1], err[1], parent);
  const int fork_errno = errno;
  close(out[1]);
  close(err[1]);
  const int pidfd = pid < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    close(out[0]);
    close(err[0]);
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    return CannotStart(pid < 0 ? fork_errno : errno, argv[0]);
  }
  auto impl = std::make_shared<Impl>(io, pid, pidfd, out[0], err[0], std::move(callbacks));
  impl->Start();
  return std::unique_ptr<Child>(new Child(std::move(impl)));
}

Child::Child(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Child::~Child() { impl_->Abandon(); }
pid_t Child::pid() const { return impl_->pid(); }
bool Child::Ended() const { return impl_->Ended(); }
void Child::Signal(int signal_number) { impl_->Signal(signal_number); }

}  // namespace weft::launcher
