#include "tests/router/doors/tcp_relay.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/time/time.h"
#include "common/check.h"

namespace weft::router {
namespace {

constexpr absl::Duration kWaitMax = absl::Seconds(10);

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

TcpRelay::TcpRelay(uint16_t server_port) : server_port_(server_port) {
  listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  WEFT_CHECK(listen_fd_ >= 0 && stop_fd_ >= 0);
  sockaddr_in address = Loopback(0);
  socklen_t bytes = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  WEFT_CHECK(bind(listen_fd_, generic, bytes) == 0 && listen(listen_fd_, 1) == 0);
  WEFT_CHECK(getsockname(listen_fd_, generic, &bytes) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = Thread("relay", [this] { Run(); });
}

TcpRelay::~TcpRelay() {
  WEFT_CHECK(eventfd_write(stop_fd_, 1) == 0);
  thread_.Join();
  close(listen_fd_);
  close(stop_fd_);
}

uint64_t TcpRelay::to_server() const {
  absl::MutexLock lock(&mutex_);
  return to_server_;
}

bool TcpRelay::WaitToServer(uint64_t bytes) const {
  absl::MutexLock lock(&mutex_);
  const auto given = [this, bytes]()
                         ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return to_server_ >= bytes; };
  return mutex_.AwaitWithTimeout(absl::Condition(&given), kWaitMax);
}

void TcpRelay::GoSilent() {
  absl::MutexLock lock(&mutex_);
  silent_ = true;
}

bool TcpRelay::Relay(int from, int to, bool to_server) {
  // Held while bytes are on their way, so that silence begins at once.
  absl::MutexLock lock(&mutex_);
  if (silent_) return true;
  char buffer[16 << 10];
  const ssize_t count = recv(from, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (count <= 0) return false;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t more = send(to, buffer + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  if (to_server) to_server_ += static_cast<uint64_t>(count);
  return true;
}

void TcpRelay::Run() {
  pollfd waiting[] = {{stop_fd_, POLLIN, 0}, {listen_fd_, POLLIN, 0}};
  poll(waiting, 2, -1);
  if (waiting[0].revents != 0) return;
  const int client = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(server_port_);
  WEFT_CHECK(client >= 0 &&
             connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  bool open = true;
  while (open) {
    bool silent = false;
    {
      absl::MutexLock lock(&mutex_);
      silent = silent_;
    }
    // A silent relay has nothing to wait for but its end.
    const int16_t events = silent ? 0 : POLLIN;
    pollfd ends[] = {{stop_fd_, POLLIN, 0}, {client, events, 0}, {server, events, 0}};
    poll(ends, silent ? 1 : 3, -1);
    if (ends[0].revents != 0) break;
    if (ends[1].revents != 0) open = Relay(client, server, /*to_server=*/true);
    if (open && ends[2].revents != 0) open = Relay(server, client, /*to_server=*/false);
  }
  close(client);
  close(server);
}

}  // namespace weft::router
