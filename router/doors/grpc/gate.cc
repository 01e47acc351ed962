#include "router/doors/grpc/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status.h"

namespace weft::router {
namespace {

constexpr int kEventsMax = 64;
// Connections taken from one socket before closed ones are looked at again.
constexpr int kAcceptsAtOnce = 64;
constexpr int64_t kDescriptorsPauseUs = 50'000;
// Between two looks at what connections have sent; some tens of megabytes can come meanwhile.
constexpr int kBytesPauseMs = 50;
constexpr int64_t kLogPauseUs = 10'000'000;
// A peer that is gone is noticed after 60 + 3 × 10 s of silence, or 60 s after bytes were sent to
// it that it never acknowledged.
constexpr int kKeepIdleS = 60;
constexpr int kKeepIntervalS = 10;
constexpr int kKeepProbes = 3;
constexpr unsigned int kUserTimeoutMs = 60'000;

// Events carry an id: these two ranges are not connections'.
constexpr uint64_t kWakeId = 0;
constexpr uint64_t kListenersMax = 64;

// Server preface (empty SETTINGS) and GOAWAY with ENHANCE_YOUR_CALM, last stream 0.
constexpr char kTooMany[] =
    "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    "\x00\x00\x1c\x07\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x0b"
    "too many connections";
constexpr size_t kTooManyBytes = sizeof(kTooMany) - 1;

int64_t NowUs() { return MonotonicClock().NowUs(); }

// The name that gRPC gives to a peer, percent-decoded; empty for a Unix socket.
std::string PeerName(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  const std::string scope = v6.sin6_scope_id == 0 ? "" : absl::StrCat("%", v6.sin6_scope_id);
  return absl::StrCat("ipv6:[", text, scope, "]:", ntohs(v6.sin6_port));
}

void SetTcpOptions(int fd) {
  const auto set = [fd](int level, int name, auto value) {
    setsockopt(fd, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

// Of two times to wait, of which -1 is for ever.
int Sooner(int a_ms, int b_ms) {
  if (a_ms < 0 || b_ms < 0) return std::max(a_ms, b_ms);
  return std::min(a_ms, b_ms);
}

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

bool ConnectionGate::RareLog::Due(int64_t now_us, int64_t* held_back) {
  if (now_us < next_us) {
    ++held;
    return false;
  }
  next_us = now_us + kLogPauseUs;
  *held_back = std::exchange(held, 0);
  return true;
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(
    const std::string& address, const ConnectionGateOptions& options) {
  WEFT_ASSIGN_OR_RETURN(Listener listener, Listener::Open(address));
  if (listener.descriptors().size() > kListenersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(address, " has more than ", kListenersMax, " addresses to listen on"));
  }
  return std::unique_ptr<ConnectionGate>(new ConnectionGate(options, std::move(listener)));
}

ConnectionGate::ConnectionGate(const ConnectionGateOptions& options, Listener listener)
    : options_(options), listener_(std::move(listener)), last_id_(kListenersMax) {}

ConnectionGate::~ConnectionGate() {
  Stop();
  for (const int fd : {epoll_, wake_, spare_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status ConnectionGate::Start(HandOver::Taker hand_over) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spare_ = OpenSpare();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (epoll_ < 0 || wake_ < 0 || spare_ < 0 ||
      epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot watch connections for gRPC: ", std::strerror(errno)));
  }
  hand_over_.Start(std::move(hand_over), [this](const std::shared_ptr<GrpcConnection>& connection) {
    // A handler can never name those of Unix sockets, so nobody would leave.
    return connection->peer().empty() ? kWays : new_.Enter(connection);
  });
  SetAccepting(true);
  thread_ = Thread("grpc-gate", [this] { Run(); });
  return absl::OkStatus();
}

void ConnectionGate::Stop() {
  if (!thread_.joinable()) return;
  hand_over_.Stop();  // a flood may hold it until the gate has ended that
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof(one)) < 0) {
    WEFT_LOG_ERROR("cannot wake the gRPC gate: {}", std::strerror(errno));
  }
  thread_.Join();
  SetAccepting(false);
}

void ConnectionGate::Run() {
  while (true) {
    const int64_t now_us = NowUs();
    int wait_ms = Sooner(CheckStarting(now_us), CheckBytes(now_us));
    if (!accepting_) {
      if (now_us >= resume_us_) {
        SetAccepting(true);
      } else {
        const int pause_ms = static_cast<int>((resume_us_ - now_us) / 1000 + 1);
        wait_ms = Sooner(wait_ms, pause_ms);
      }
    }
    std::array<epoll_event, kEventsMax> events;
    const int count = epoll_wait(epoll_, events.data(), kEventsMax, wait_ms);
    // What has closed makes room, so it goes first.
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 > kListenersMax) Remove(events[i].data.u64);
    }
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kWakeId) return;
      if (id <= kListenersMax) Accept(listener_.descriptors()[id - 1]);
    }
  }
}

// -- Accepting -----------------------------------------------------------------------------------

void ConnectionGate::SetAccepting(bool accepting) {
  if (accepting_ == accepting) return;
  accepting_ = accepting;
  for (size_t i = 0; i < listener_.descriptors().size(); ++i) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i + 1;
    epoll_ctl(epoll_, accepting ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.descriptors()[i],
              &event);
  }
}

void ConnectionGate::Accept(int listener_fd) {
  for (int i = 0; i < kAcceptsAtOnce && accepting_; ++i) {
    const int fd = accept4(listener_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      if (MakeRoom()) {
        Add(listener_fd, fd);
      } else {
        Refuse(fd);
      }
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return;
    OutOfDescriptors(listener_fd, errno);
  }
}

bool ConnectionGate::MakeRoom() {
  std::shared_ptr<GrpcConnection> leaves;
  {
    absl::MutexLock lock(&mutex_);
    if (by_id_.size() >= options_.connections_max) {
      leaves = LeastWorth();
      if (leaves == nullptr) return false;
    } else if (starting_.size() >= options_.starting_max) {
      leaves = starting_.front();
    } else {
      return true;
    }
    ++stats_.refused;
  }
  leaves->End();
  Remove(leaves->id());
  return true;
}

std::shared_ptr<GrpcConnection> ConnectionGate::LeastWorth() const {
  const std::shared_ptr<GrpcConnection>* least = nullptr;
  GrpcConnection::Worth least_worth;
  for (const auto& [id, entry] : by_id_) {
    // Calls cannot be told to belong to one that has no name.
    if (entry.connection->peer().empty()) continue;
    const GrpcConnection::Worth worth = entry.connection->worth();
    if (worth.running || (least != nullptr && !(worth < least_worth))) continue;
    least = &entry.connection;
    least_worth = worth;
  }
  return least == nullptr ? nullptr : *least;
}

void ConnectionGate::Refuse(int fd) {
  if (options_.plain_text) {
    // Best effort: a client that gets it knows why, one that does not sees a reset.
    (void)send(fd, kTooMany, kTooManyBytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
  }
  close(fd);
  int64_t held_back = 0;
  if (refused_log_.Due(NowUs(), &held_back)) {
    WEFT_LOG_WARN(
        "a gRPC connection was refused: {} are open and calls run on all of them ({} more were "
        "since "
        "the last such line); --grpc-connections-max allows more",
        options_.connections_max, held_back);
  }
  absl::MutexLock lock(&mutex_);
  ++stats_.refused;
}

void ConnectionGate::OutOfDescriptors(int listener_fd, int error) {
  // The spare descriptor takes one client off the queue, who would wait in vain; then a pause, as
  // the socket stays readable.
  if ((error == EMFILE || error == ENFILE) && spare_ >= 0) {
    close(spare_);
    const int fd = accept4(listener_fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    spare_ = OpenSpare();
  }
  resume_us_ = NowUs() + kDescriptorsPauseUs;
  SetAccepting(false);
  int64_t held_back = 0;
  if (descriptors_log_.Due(NowUs(), &held_back)) {
    WEFT_LOG_WARN(
        "cannot accept gRPC connections: {}; raise the limit of open files (ulimit -n) or lower "
        "--grpc-connections-max",
        std::strerror(error));
  }
}

void ConnectionGate::Add(int listener_fd, int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    close(fd);  // gone already
    return;
  }
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    const int error = errno;
    close(fd);
    OutOfDescriptors(listener_fd, error);
    return;
  }
  const std::string peer = PeerName(address);
  if (!peer.empty()) SetTcpOptions(fd);
  const uint64_t id = ++last_id_;
  auto connection = std::make_shared<GrpcConnection>(id, peer, own, NowUs());
  Entry entry;
  entry.connection = connection;
  entry.fd = own;
  {
    absl::MutexLock lock(&mutex_);
    if (!peer.empty()) {
      by_peer_.insert_or_assign(peer, connection);
      entry.starting = true;
      entry.at = starting_.insert(starting_.end(), connection);
    }
    by_id_.emplace(id, entry);
  }
  epoll_event event{};  // EPOLLHUP and EPOLLERR only: the bytes are gRPC's
  event.data.u64 = id;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, own, &event);
  hand_over_.Push({listener_fd, fd, std::move(connection)});
}

// -- Connections ---------------------------------------------------------------------------------

void ConnectionGate::LeaveStarting(Entry* entry) {
  if (!entry->starting) return;
  entry->starting = false;
  starting_.erase(entry->at);
}

void ConnectionGate::Remove(uint64_t id) {
  std::shared_ptr<GrpcConnection> connection;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    connection = found->second.connection;
    // gRPC may still hold the socket: epoll would go on reporting it after our descriptor's end.
    epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.fd, nullptr);
    LeaveStarting(&found->second);
    by_id_.erase(found);
    // The same peer may have come back meanwhile.
    const auto named = by_peer_.find(connection->peer());
    if (named != by_peer_.end() && named->second == connection) by_peer_.erase(named);
  }
  connection->Closed();
}

int ConnectionGate::CheckStarting(int64_t now_us) {
  while (true) {
    std::shared_ptr<GrpcConnection> late;
    {
      absl::MutexLock lock(&mutex_);
      if (starting_.empty()) return -1;
      const int64_t due_us = starting_.front()->accepted_us() + options_.first_call_timeout_us;
      if (now_us < due_us) return static_cast<int>((due_us - now_us) / 1000 + 1);
      late = starting_.front();
      ++stats_.timed_out;
    }
    late->End();
    Remove(late->id());
  }
}

int ConnectionGate::CheckBytes(int64_t now_us) {
  std::vector<std::shared_ptr<GrpcConnection>> open;
  {
    absl::MutexLock lock(&mutex_);
    if (by_id_.empty()) return -1;
    open.reserve(by_id_.size());
    for (const auto& [id, entry] : by_id_) open.push_back(entry.connection);
  }
  uint64_t total = 0;
  std::vector<std::pair<uint64_t, GrpcConnection*>> by_bytes;
  for (const std::shared_ptr<GrpcConnection>& connection : open) {
    if (connection->ended()) continue;
    const GrpcConnection::Bytes seen = connection->Look(now_us);
    if (seen.unread_us >= options_.slow_reader_timeout_us) {
      EndSlow(connection.get());
      continue;
    }
    if (seen.unanswered > options_.unanswered_bytes_max) {
      connection->End();
      NoteUnfinished(*connection, seen.unanswered);
      continue;
    }
    const uint64_t bytes = seen.unfinished;
    total += bytes;
    if (bytes > 0) by_bytes.emplace_back(bytes, connection.get());
  }
  std::sort(by_bytes.rbegin(), by_bytes.rend());
  for (const auto& [bytes, connection] : by_bytes) {
    if (bytes <= options_.unfinished_connection_bytes_max &&
        total <= options_.unfinished_bytes_max) {
      break;
    }
    connection->End();
    total -= bytes;
    NoteUnfinished(*connection, bytes);
  }
  return kBytesPauseMs;
}

void ConnectionGate::EndSlow(GrpcConnection* connection) {
  connection->End();
  int64_t held_back = 0;
  {
    absl::MutexLock lock(&mutex_);
    ++stats_.slow;
  }
  if (!slow_log_.Due(NowUs(), &held_back)) return;
  WEFT_LOG_WARN(
      "a gRPC connection was ended, its client does not read what was sent to it: {} ({} more were "
      "since the last such line); --slow-reader-timeout-s allows more time",
      connection->peer(), held_back);
}

void ConnectionGate::NoteUnfinished(const GrpcConnection& connection, uint64_t bytes) {
  int64_t held_back = 0;
  {
    absl::MutexLock lock(&mutex_);
    ++stats_.floods;
  }
  if (!unfinished_log_.Due(NowUs(), &held_back)) return;
  WEFT_LOG_WARN(
      "a gRPC connection was ended, {} bytes of its client were neither whole headers nor a whole "
      "message: {} ({} more were since the last such line)",
      bytes, connection.peer(), held_back);
}

std::shared_ptr<GrpcConnection> ConnectionGate::Find(const std::string& peer) const {
  absl::MutexLock lock(&mutex_);
  auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) {
    found = by_peer_.find(absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}}));
  }
  return found == by_peer_.end() ? nullptr : found->second;
}

void ConnectionGate::Identify(GrpcConnection* connection) {
  if (!connection->Identify()) return;
  absl::MutexLock lock(&mutex_);
  const auto found = by_id_.find(connection->id());
  if (found != by_id_.end()) LeaveStarting(&found->second);
}

void ConnectionGate::EndFlood(const std::shared_ptr<GrpcConnection>& connection) {
  connection->End();
  int64_t held_back = 0;
  {
    absl::MutexLock lock(&mutex_);
    ++stats_.floods;
    if (!flood_log_.Due(NowUs(), &held_back)) return;
  }
  WEFT_LOG_WARN(
      "a gRPC connection was ended, its client resets calls faster than it lets them answer: {} "
      "({} more were since the last such line)",
      connection->peer(), held_back);
}

ConnectionGate::Stats ConnectionGate::stats() const {
  absl::MutexLock lock(&mutex_);
  Stats stats = stats_;
  stats.connections = by_id_.size();
  stats.starting = starting_.size();
  return stats;
}

}  // namespace weft::router
