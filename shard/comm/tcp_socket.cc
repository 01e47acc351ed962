#include "shard/comm/tcp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host_port.h"
#include "common/status.h"

namespace weft::shard {
namespace {

// A connect that hears nothing is begun anew after this time: the kernel's own repetitions come
// after 1, 3 and 7 s, which is late once a partition has healed.
constexpr absl::Duration kConnectAttempt = absl::Milliseconds(400);
constexpr int kBacklog = 128;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

absl::StatusOr<Address> ParseAddress(const std::string& host, uint32_t port) {
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(sockaddr_in6);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--comm-host: \"", host,
                     "\" is not an IP address; name the one of this host at which the "
                     "other ranks' hosts reach it"));
  }
  return address;
}

const sockaddr* Raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

void SetUp(int fd) {
  const int on = 1;
  // An exchange is one small message in each direction, and its delay is a token's.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Whether `fd` is ready for `events` within a slice.
bool Await(int fd, short events) {
  pollfd entry{fd, events, 0};
  return poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(kSlice))) > 0;
}

// One try to connect, at most kConnectAttempt long; `why` says how it failed.
absl::StatusOr<TcpSocket> TryConnect(const Address& address, const Patience& patience,
                                     std::string* why) {
  TcpSocket socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return absl::ResourceExhaustedError(strerror(errno));
  if (connect(socket.fd(), Raw(address), address.size) != 0 && errno != EINPROGRESS) {
    *why = strerror(errno);
    return TcpSocket();
  }
  const absl::Time end = absl::Now() + kConnectAttempt;
  while (!Await(socket.fd(), POLLOUT)) {
    WEFT_RETURN_IF_ERROR(patience.Check("a connection was waited for"));
    if (absl::Now() >= end) {
      *why = "no answer";
      return TcpSocket();
    }
  }
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    *why = strerror(error);
    return TcpSocket();
  }
  SetUp(socket.fd());
  return socket;
}

absl::Status Gone() { return absl::UnavailableError("the connection broke"); }

}  // namespace

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) close(fd_);
}

void TcpSocket::Shutdown() const {
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

absl::Status Patience::Check(absl::string_view what) const {
  if (heartbeat != nullptr) heartbeat->Beat();
  if (aborted && aborted()) return absl::AbortedError("the epoch is ending");
  if (absl::Now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(what, " until its time-out"));
}

absl::StatusOr<TcpSocket> ListenTcp(const std::string& host, PortRange ports) {
  std::string why;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    WEFT_ASSIGN_OR_RETURN(const Address address, ParseAddress(host, port));
    TcpSocket socket(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (!socket.open()) return absl::ResourceExhaustedError(strerror(errno));
    setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(socket.fd(), Raw(address), address.size) == 0 && listen(socket.fd(), kBacklog) == 0) {
      return socket;
    }
    if (errno == EADDRNOTAVAIL) {
      return absl::FailedPreconditionError(
          absl::StrCat("--comm-host: ", host, " is no address of this host"));
    }
    why = strerror(errno);
  }
  return absl::FailedPreconditionError(absl::StrCat("--comm-ports: no port of ", ports.first,
                                                    " to ", ports.last, " on ", host,
                                                    " can be listened on: ", why));
}

uint32_t PortOf(const TcpSocket& listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  return storage.ss_family == AF_INET
             ? ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port)
             : ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

TcpSocket AcceptTcp(const TcpSocket& listener) {
  TcpSocket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.open()) SetUp(socket.fd());
  return socket;
}

absl::StatusOr<TcpSocket> ConnectTcp(const TcpEndpoint& to, const Patience& patience) {
  WEFT_ASSIGN_OR_RETURN(const Address address, ParseAddress(to.host, to.port));
  for (;;) {
    std::string why;
    WEFT_ASSIGN_OR_RETURN(TcpSocket socket, TryConnect(address, patience, &why));
    if (socket.open()) return socket;
    WEFT_RETURN_IF_ERROR(patience.Check(
        absl::StrCat(HostPort(to.host, to.port), " was not to be reached (", why, ")")));
    // Nothing tells when somebody listens there.
    AwaitReadable({});
  }
}

absl::Status WriteAll(const TcpSocket& socket, const void* data, size_t bytes,
                      const Patience& patience) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket.fd(), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      from += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return Gone();
    } else if (!Await(socket.fd(), POLLOUT)) {
      WEFT_RETURN_IF_ERROR(patience.Check("a peer took nothing"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadAll(const TcpSocket& socket, void* data, size_t bytes, const Patience& patience) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const int64_t read = ReadSome(socket, to, bytes);
    if (read < 0) return Gone();
    to += read;
    bytes -= static_cast<size_t>(read);
    if (read == 0 && !Await(socket.fd(), POLLIN)) {
      WEFT_RETURN_IF_ERROR(patience.Check("a peer was waited for"));
    }
  }
  return absl::OkStatus();
}

void AwaitReadable(const std::vector<int>& sockets) {
  std::vector<pollfd> entries;
  for (const int socket : sockets) entries.push_back({socket, POLLIN, 0});
  poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(kSlice)));
}

int64_t ReadSome(const TcpSocket& socket, void* data, size_t bytes) {
  const ssize_t read = recv(socket.fd(), data, bytes, MSG_DONTWAIT);
  if (read > 0) return read;
  if (read < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return -1;
}

}  // namespace weft::shard
