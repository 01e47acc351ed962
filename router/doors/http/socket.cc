#include "router/doors/http/socket.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"

namespace weft::router {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A peer that is silent and does not answer probes is gone after 30 + 3 * 10 s.
constexpr int kKeepIdleS = 30;
constexpr int kKeepIntervalS = 10;
constexpr int kKeepProbes = 3;
// Unsent bytes that the kernel keeps for one connection.
constexpr int kUnsentBytesMax = 128 << 10;
// First byte of a TLS handshake record (RFC 8446, 5.1).
constexpr unsigned char kHandshakeRecord = 0x16;

void SetOption(int fd, int level, int name, int value) {
  // One that this kernel lacks is not worth a connection.
  setsockopt(fd, level, name, &value, sizeof(value));
}

}  // namespace

HttpSocket::HttpSocket(asio::ip::tcp::socket socket, std::shared_ptr<SSL_CTX> context)
    : socket_(std::move(socket)), context_(std::move(context)) {}

void HttpSocket::SetNonBlocking() {
  error_code ignored;
  socket_.non_blocking(true, ignored);
}

void HttpSocket::SetInheritedOptions(int fd, const HttpLimits& limits) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  SetOption(
      fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(std::clamp<int64_t>(limits.unacknowledged_us() / 1000, 1, 86'400'000)));
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytesMax);
}

SocketIo HttpSocket::ResultOf(const error_code& error) {
  if (!error) return SocketIo::kDone;
  if (error == asio::error::would_block || error == asio::error::try_again) {
    return SocketIo::kBlocked;
  }
  if (error == asio::error::timed_out) timed_out_ = true;
  return error == asio::error::eof ? SocketIo::kEnd : SocketIo::kFailed;
}

SocketIo HttpSocket::Handshake(bool* wants_write) {
  if (session_ == nullptr) {
    unsigned char first = 0;
    const ssize_t count = recv(socket_.native_handle(), &first, 1, MSG_PEEK);
    if (count < 0) {
      *wants_write = false;
      return errno == EAGAIN || errno == EINTR ? SocketIo::kBlocked : SocketIo::kFailed;
    }
    if (count == 0) return SocketIo::kEnd;
    plain_client_ = first != kHandshakeRecord;
    if (plain_client_) return SocketIo::kFailed;
    session_ = TlsSession::Create(context_.get(), socket_.native_handle());
    if (session_ == nullptr) return SocketIo::kFailed;
  }
  return session_->Handshake(wants_write);
}

SocketIo HttpSocket::Read(char* data, size_t room, size_t* count) {
  if (session_ != nullptr) return session_->Read(data, room, count);
  error_code error;
  *count = socket_.read_some(asio::buffer(data, room), error);
  return ResultOf(error);
}

SocketIo HttpSocket::Write(const char* data, size_t size, size_t* count) {
  if (session_ != nullptr) return session_->Write(data, size, count);
  error_code error;
  *count = socket_.write_some(asio::buffer(data, size), error);
  sent_bytes_ += *count;
  return ResultOf(error);
}

void HttpSocket::WritePlain(const char* data, size_t size) {
  error_code ignored;
  socket_.write_some(asio::buffer(data, size), ignored);
}

HttpSocket::Peer HttpSocket::CheckPeer() {
  pollfd one = {socket_.native_handle(), POLLRDHUP, 0};
  if (poll(&one, 1, 0) <= 0) return Peer::kOpen;
  if ((one.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return Peer::kGone;
  return (one.revents & POLLRDHUP) != 0 ? Peer::kHalfClosed : Peer::kOpen;
}

uint64_t HttpSocket::acknowledged_bytes() {
  const uint64_t sent = session_ != nullptr ? session_->sent_bytes() : sent_bytes_;
  int waiting = 0;
  if (ioctl(socket_.native_handle(), SIOCOUTQ, &waiting) != 0 || waiting < 0) return sent;
  return sent - std::min<uint64_t>(sent, static_cast<uint64_t>(waiting));
}

std::string HttpSocket::PeerName() const {
  error_code error;
  const asio::ip::tcp::endpoint end = socket_.remote_endpoint(error);
  if (error) return "";
  const std::string address = end.address().to_string();
  return end.address().is_v6() ? absl::StrCat("[", address, "]:", end.port())
                               : absl::StrCat(address, ":", end.port());
}

void HttpSocket::ShutdownSend() {
  if (session_ != nullptr) session_->ShutdownSend();
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

void HttpSocket::Close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace weft::router
