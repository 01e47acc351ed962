#include "router/doors/grpc/connection.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace weft::router {
namespace {

// Pings, acknowledgements and window updates, and what TLS adds to each.
constexpr uint64_t kForgivenBytesPerS = 64 << 10;
// HTTP/2 frames and TLS records add less than one byte to so many of a message.
constexpr uint64_t kMessageBytesPerFraming = 256;
// What gRPC has read is noted at most so often: it costs two system calls.
constexpr int64_t kNotePauseUs = 1'000;

// TCP_CLOSE of <netinet/tcp.h>, which does not go with <linux/tcp.h>.
constexpr uint8_t kStateClosed = 7;

}  // namespace

GrpcConnection::GrpcConnection(uint64_t id, std::string peer, int fd, int64_t accepted_us)
    : id_(id),
      peer_(std::move(peer)),
      accepted_us_(accepted_us),
      used_us_(accepted_us),
      taken_at_us_(accepted_us),
      read_at_us_(accepted_us),
      acknowledged_at_us_(accepted_us),
      fd_(fd) {}

GrpcConnection::~GrpcConnection() { Closed(); }

bool GrpcConnection::Identify() {
  absl::MutexLock lock(&mutex_);
  return !std::exchange(identified_, true);
}

bool GrpcConnection::identified() const {
  absl::MutexLock lock(&mutex_);
  return identified_;
}

bool GrpcConnection::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

bool GrpcConnection::closed() const {
  absl::MutexLock lock(&mutex_);
  return fd_ < 0;
}

void GrpcConnection::AddRunning(int calls, int64_t now_us) {
  running_.fetch_add(calls, std::memory_order_relaxed);
  Touch(now_us);
}

GrpcConnection::Worth GrpcConnection::worth() const {
  Worth worth;
  worth.running = running_.load(std::memory_order_relaxed) > 0;
  worth.authenticated = authenticated_.load(std::memory_order_relaxed);
  worth.used_us = used_us_.load(std::memory_order_relaxed);
  return worth;
}

uint64_t GrpcConnection::ReceivedBytes() const {
  absl::MutexLock lock(&mutex_);
  tcp_info facts{};
  return Facts(&facts) ? facts.tcpi_bytes_received : 0;
}

bool GrpcConnection::Facts(tcp_info* facts) const {
  socklen_t bytes = sizeof(*facts);
  return fd_ >= 0 && getsockopt(fd_, IPPROTO_TCP, TCP_INFO, facts, &bytes) == 0;
}

uint64_t GrpcConnection::BeginMessage(int64_t began_us, int64_t now_us, uint64_t header_bytes) {
  absl::MutexLock lock(&mutex_);
  if (began_us > read_at_us_) parsed_bytes_ = std::max(parsed_bytes_, read_bytes_);
  tcp_info facts{};
  if (now_us - read_at_us_ >= kNotePauseUs && Facts(&facts)) NoteRead(facts, now_us);
  message_begins_.insert(parsed_bytes_);
  // What was said in few bytes because the client had said it before is more than came. That is
  // at most the table of HPACK (4 KiB) a call, and only until it is settled.
  taken_bytes_ += header_bytes;
  Settle();
  return parsed_bytes_;
}

void GrpcConnection::EndMessage(uint64_t begin, uint64_t message_bytes) {
  absl::MutexLock lock(&mutex_);
  const auto found = message_begins_.find(begin);
  if (found != message_begins_.end()) message_begins_.erase(found);
  taken_bytes_ += message_bytes + message_bytes / kMessageBytesPerFraming;
  Settle();
}

void GrpcConnection::NoteRead(const tcp_info& facts, int64_t now_us) {
  int waiting = 0;
  if (ioctl(fd_, SIOCINQ, &waiting) != 0) return;
  const uint64_t received = facts.tcpi_bytes_received;
  read_at_us_ = now_us;
  read_bytes_ = received - std::min<uint64_t>(received, static_cast<uint64_t>(waiting));
}

void GrpcConnection::Settle() {
  const uint64_t settled =
      message_begins_.empty() ? parsed_bytes_ : std::min(parsed_bytes_, *message_begins_.begin());
  taken_bytes_ = std::max(taken_bytes_, settled);
}

GrpcConnection::Bytes GrpcConnection::Look(int64_t now_us) {
  Bytes bytes;
  absl::MutexLock lock(&mutex_);
  tcp_info facts{};
  if (!Facts(&facts)) return bytes;
  const uint64_t received = facts.tcpi_bytes_received;
  const int64_t passed_us = std::clamp<int64_t>(now_us - taken_at_us_, 0, 3'600'000'000);
  taken_at_us_ = now_us;
  taken_bytes_ += static_cast<uint64_t>(passed_us) * kForgivenBytesPerS / 1'000'000;
  // Nobody saves up by what is larger than it came.
  taken_bytes_ = std::min(taken_bytes_, received);
  bytes.unfinished = received - taken_bytes_;
  NoteRead(facts, now_us);
  if (facts.tcpi_bytes_acked != answered_bytes_ || !message_begins_.empty()) {
    answered_bytes_ = facts.tcpi_bytes_acked;
    read_at_answer_ = read_bytes_;
  }
  bytes.unanswered = read_bytes_ - std::min(read_bytes_, read_at_answer_);
  if (facts.tcpi_notsent_bytes == 0 || facts.tcpi_bytes_acked != acknowledged_bytes_) {
    acknowledged_bytes_ = facts.tcpi_bytes_acked;
    acknowledged_at_us_ = now_us;
  }
  bytes.unread_us = now_us - acknowledged_at_us_;
  return bytes;
}

void GrpcConnection::End() {
  absl::MutexLock lock(&mutex_);
  if (ended_ || fd_ < 0) return;
  ended_ = true;
  Dissolve();
}

void GrpcConnection::Closed() {
  absl::MutexLock lock(&mutex_);
  tcp_info facts{};
  // After a reset gRPC would still read, and begin, what had come before.
  if (!ended_ && Facts(&facts) && facts.tcpi_state == kStateClosed) Dissolve();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void GrpcConnection::Dissolve() {
  // It resets the connection and frees its receive queue, which may hold megabytes of calls; after
  // a mere shutdown gRPC would still read and begin them all.
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  if (connect(fd_, &nowhere, sizeof(nowhere)) != 0) shutdown(fd_, SHUT_RDWR);
}

}  // namespace weft::router
