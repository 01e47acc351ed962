#include "router/shards/supervisor_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"

namespace weft::router {
namespace {

constexpr size_t kLineBytesMax = 1024;
constexpr int kReconnectMs = 200;

// A connected socket, or -1.
int Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

std::string RestartLine(Rank rank, uint64_t pid, absl::string_view reason) {
  std::string line = absl::StrCat("restart ", rank, " ", pid, " ", reason);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  line.resize(std::min(line.size(), kLineBytesMax - 1));
  line.push_back('\n');
  return line;
}

absl::Status ParseDiedLine(absl::string_view line, ShardDeath* death) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
  if (words.size() < 3 || words[0] != "died" || !absl::SimpleAtoi(words[1], &death->rank) ||
      !absl::SimpleAtoi(words[2], &death->pid)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected \"died <rank> <pid> [why]\", found \"", line, "\""));
  }
  death->why = words.size() > 3 ? std::string(words[3]) : "";
  return absl::OkStatus();
}

SupervisorClient::SupervisorClient(std::string socket_path,
                                   std::function<void(ShardDeath)> on_death)
    : socket_path_(std::move(socket_path)),
      on_death_(std::move(on_death)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  WEFT_CHECK_MSG(wake_fd_ >= 0, "eventfd");
  thread_ = Thread("supervisor", [this] { Run(); });
}

SupervisorClient::~SupervisorClient() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_fd_, 1);
  thread_.Join();
  close(wake_fd_);
}

void SupervisorClient::Restart(Rank rank, uint64_t pid, const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(orders_, [rank](const Order& order) { return order.rank == rank; });
    orders_.push_back({rank, RestartLine(rank, pid, reason)});
  }
  eventfd_write(wake_fd_, 1);
}

bool SupervisorClient::stopping() const {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void SupervisorClient::Run() {
  bool complained = false;
  while (!stopping()) {
    const int fd = Connect(socket_path_);
    if (fd >= 0) {
      complained = false;
      Serve(fd);
      close(fd);
    } else if (!complained) {
      WEFT_LOG_WARN("no supervisor at {}: {}; dead shards stay dead until it is back", socket_path_,
                    std::strerror(errno));
      complained = true;
    }
    if (stopping()) return;
    // An order's wake-up must not make this loop spin: it is taken here, the order waits.
    pollfd wake{wake_fd_, POLLIN, 0};
    if (poll(&wake, 1, kReconnectMs) > 0) {
      eventfd_t count;
      eventfd_read(wake_fd_, &count);
    }
  }
}

void SupervisorClient::Serve(int socket_fd) {
  std::string buffer;
  if (!SendOrders(socket_fd)) return;
  while (true) {
    pollfd fds[2] = {{socket_fd, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[1].revents != 0) {
      eventfd_t count;
      eventfd_read(wake_fd_, &count);
      if (stopping() || !SendOrders(socket_fd)) return;
    }
    if (fds[0].revents != 0) {
      char bytes[512];
      const ssize_t got = recv(socket_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
      if (got > 0) buffer.append(bytes, static_cast<size_t>(got));
      if (!HandleInput(&buffer)) return;
    }
  }
}

bool SupervisorClient::HandleInput(std::string* buffer) {
  size_t end;
  while ((end = buffer->find('\n')) != std::string::npos) {
    const std::string line = buffer->substr(0, end);
    buffer->erase(0, end + 1);
    if (absl::StartsWith(line, "died ")) {
      ShardDeath death;
      if (absl::Status status = ParseDiedLine(line, &death); !status.ok()) {
        WEFT_LOG_WARN("supervisor: {}", status.message().data());
        return false;
      }
      on_death_(death);
    } else if (absl::StartsWith(line, "error")) {
      WEFT_LOG_ERROR("supervisor refused a restart: {}", line);
    } else if (line != "ok" && !absl::StartsWith(line, "started ")) {
      WEFT_LOG_WARN("supervisor: unknown line of {} bytes", line.size());
      return false;
    }
  }
  return buffer->size() <= kLineBytesMax;
}

bool SupervisorClient::SendOrders(int socket_fd) {
  while (true) {
    Order order;
    {
      absl::MutexLock lock(&mutex_);
      if (orders_.empty()) return true;
      order = orders_.front();
    }
    // A line is far smaller than the socket's buffer: this does not block with a live peer, and
    // with a dead one it fails.
    size_t sent = 0;
    while (sent < order.line.size()) {
      const ssize_t n =
          send(socket_fd, order.line.data() + sent, order.line.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    absl::MutexLock lock(&mutex_);
    std::erase_if(orders_, [&](const Order& o) { return o.line == order.line; });
  }
}

std::unique_ptr<ShardRestarter> MakeSupervisorClient(const std::string& socket_path,
                                                     std::function<void(ShardDeath)> on_death) {
  if (socket_path.empty()) return nullptr;
  return std::make_unique<SupervisorClient>(socket_path, std::move(on_death));
}

}  // namespace weft::router
