#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host_port.h"
#include "common/status.h"
#include "common/thread.h"
#include "deploy/launcher/doctor/host.h"
#include "shard/comm/shm_segment.h"
#include "shard/device/cpu/runner.h"
#include "shard/thread_share.h"

namespace weft::launcher {
namespace {

// As the router's listeners: a port that a server left a moment ago is free.
absl::Status ListenAt(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, address.ai_addr, address.ai_addrlen) != 0 || listen(fd, 1) != 0) {
    if (errno == EADDRINUSE) return absl::AlreadyExistsError("address already in use");
    return absl::ErrnoToStatus(errno, "cannot listen");
  }
  return absl::OkStatus();
}

// In a process of its own, which sees this one's descriptors as another shard does.
absl::Status OpenInChild(const shard::ShmSegment& segment, const shard::ShmShape& shape) {
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    const auto mapping = shard::ShmMapping::Open(segment.token(), shape);
    _exit(mapping.ok() ? 0 : 1 + static_cast<int>(mapping.status().code()));
  }
  int state = 0;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return absl::OkStatus();
  const int code = WIFEXITED(state) ? WEXITSTATUS(state) - 1 : 2;
  return absl::Status(static_cast<absl::StatusCode>(code),
                      "a second process could not open the shared memory of the first one");
}

class RealHost : public Host {
 public:
  std::string root() const override { return ""; }

  uint64_t OpenFilesMax() const override {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
  }

  absl::Status ThreadsLeft(uint32_t count) const override { return CheckThreadsLeft(count); }

  uint32_t Cores() const override { return shard::UsableCores(); }

  std::vector<std::string> InstructionSets() const override {
    return shard::SupportedInstructionSets();
  }

  absl::Time Now() const override { return absl::Now(); }

  absl::optional<bool> ClockIsSynchronised() const override {
    timex state{};
    const int found = adjtimex(&state);
    if (found < 0) return absl::nullopt;
    return found != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  }

  absl::optional<uint64_t> DevShmBytes() const override {
    struct statvfs room {};
    if (statvfs("/dev/shm", &room) != 0) return absl::nullopt;
    return uint64_t{room.f_bavail} * room.f_frsize;
  }

  absl::Status Listen(const std::string& host, uint32_t port) const override {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string name(WithoutBrackets(host));
    if (const int error = getaddrinfo(name.c_str(), absl::StrCat(port).c_str(), &wanted, &found);
        error != 0) {
      return absl::InvalidArgumentError(gai_strerror(error));
    }
    const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
    return ListenAt(*found);
  }

  absl::Status Meet() const override {
    shard::ShmShape shape;
    shape.world = 2;
    shape.capacity_floats = 1024;
    WEFT_ASSIGN_OR_RETURN(const shard::ShmSegment segment, shard::ShmSegment::Create(shape));
    return OpenInChild(segment, shape);
  }

  bool OthersRead(const std::string& path) const override {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0;
  }

  shard::GpuSurvey Gpus() const override { return shard::SurveyGpus(); }
};

}  // namespace

std::unique_ptr<Host> ThisHost() { return std::make_unique<RealHost>(); }

}  // namespace weft::launcher
