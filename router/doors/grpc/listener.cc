#include "router/doors/grpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace weft::router {
namespace {

constexpr int kBacklog = 4096;

absl::Status ListenError(const std::string& address, int error) {
  const std::string message = absl::StrCat("cannot listen on ", address, " for gRPC");
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat(message, "; choose another --grpc-port, or 0 for a free one"));
  }
  return absl::FailedPreconditionError(absl::StrCat(message, ": ", std::strerror(error)));
}

int NewSocket(int family) { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

// Binds and listens; a descriptor, or -1 with errno.
int Bind(const sockaddr* address, socklen_t bytes, bool both_families) {
  const int fd = NewSocket(address->sa_family);
  if (fd < 0) return -1;
  const int on = 1;
  const int v6_only = both_families ? 0 : 1;
  if (address->sa_family != AF_UNIX) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (address->sa_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  if (bind(fd, address, bytes) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int BoundPort(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return 0;
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
}

void SetPort(sockaddr* address, int port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(static_cast<uint16_t>(port));
  }
}

// A socket file whose process is gone refuses connections: it may be replaced. One that answers, or
// a file that is no socket, is left alone and bind reports it.
void RemoveDeadSocket(const sockaddr_un& address) {
  struct stat facts {};
  if (lstat(address.sun_path, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return;
  const int fd = NewSocket(AF_UNIX);
  if (fd < 0) return;
  const bool dead =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED;
  close(fd);
  if (dead) unlink(address.sun_path);
}

}  // namespace

Listener::Listener(Listener&& other) noexcept
    : descriptors_(std::move(other.descriptors_)),
      port_(other.port_),
      path_(std::move(other.path_)) {
  other.descriptors_.clear();
  other.path_.clear();
}

Listener::~Listener() {
  for (const int fd : descriptors_) close(fd);
  if (!path_.empty()) unlink(path_.c_str());
}

absl::StatusOr<Listener> Listener::Open(const std::string& address) {
  Listener listener;
  if (absl::StartsWith(address, "unix:")) {
    WEFT_RETURN_IF_ERROR(listener.OpenUnix(address));
  } else {
    WEFT_RETURN_IF_ERROR(listener.OpenTcp(address));
  }
  return listener;
}

absl::Status Listener::OpenUnix(const std::string& address) {
  absl::string_view path = address;
  absl::ConsumePrefix(&path, "unix:");
  if (absl::StartsWith(path, "///")) path.remove_prefix(2);
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(where.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the path of ", address, " must have 1 to ",
                                                   sizeof(where.sun_path) - 1, " bytes"));
  }
  std::memcpy(where.sun_path, path.data(), path.size());
  RemoveDeadSocket(where);
  const int fd = Bind(reinterpret_cast<const sockaddr*>(&where), sizeof(where), false);
  if (fd < 0) return ListenError(address, errno);
  descriptors_.push_back(fd);
  path_ = std::string(path);
  return absl::OkStatus();
}

absl::Status Listener::OpenTcp(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t number = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &number) ||
      number > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", address, "` is no address for gRPC: host:port, the port 0 to 65535"));
  }
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const bool wildcard = host == "0.0.0.0" || host == "::";
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(std::string(host).c_str(), "0", &hints, &found);
  if (code != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", host, "` is no host to listen on for gRPC: ",
                     code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code)));
  }
  const absl::Cleanup release = [found] { freeaddrinfo(found); };
  port_ = static_cast<int>(number);
  if (wildcard) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port_));
    const int fd = Bind(reinterpret_cast<const sockaddr*>(&any), sizeof(any), true);
    if (fd < 0 && errno == EADDRINUSE) return ListenError(address, errno);
    if (fd >= 0) {
      descriptors_.push_back(fd);
      port_ = BoundPort(fd);
      return absl::OkStatus();
    }
    // No IPv6 here: the addresses that were found are bound instead.
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SetPort(one->ai_addr, port_);
    const int fd = Bind(one->ai_addr, one->ai_addrlen, false);
    if (fd < 0) {
      error = errno;
      // With a free port asked for, what the first address got may be taken on the next.
      if (error == EADDRINUSE && number != 0) return ListenError(address, error);
      continue;  // or an address that this machine does not have
    }
    descriptors_.push_back(fd);
    port_ = BoundPort(fd);
  }
  return descriptors_.empty() ? ListenError(address, error) : absl::OkStatus();
}

}  // namespace weft::router
