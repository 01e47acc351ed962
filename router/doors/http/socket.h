// The socket of one HTTP connection, plain or with TLS: options, reads and writes that never block,
// and what is known of the other end. Lives on its connection's thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "boost/asio/ip/tcp.hpp"
#include "router/doors/http/limits.h"
#include "router/doors/http/tls_session.h"

namespace weft::router {

class HttpSocket {
 public:
  // What the kernel knows of the other end.
  enum class Peer {
    kOpen,
    kHalfClosed,  // it sends no more; it may have gone or may still read
    kGone         // reset, or nobody answers
  };

  // `context` null = plain.
  HttpSocket(boost::asio::ip::tcp::socket socket, std::shared_ptr<SSL_CTX> context);

  // Sets the options that every connection of a listening socket is born with: no delay; keepalive
  // and a time-out for what is not acknowledged, so that peers that vanish without a word are seen;
  // little unsent in the kernel, so that its buffers do not hold what a slow reader has not asked
  // for. Linux hands them on to each accepted socket, which saves a flood of connections seven
  // system calls each.
  static void SetInheritedOptions(int listening_fd, const HttpLimits& limits);
  void SetNonBlocking();

  bool tls() const { return context_ != nullptr; }
  // TLS only. kFailed also for what is no TLS at all: then plain_client() is true.
  SocketIo Handshake(bool* wants_write);
  bool plain_client() const { return plain_client_; }
  SocketIo Read(char* data, size_t room, size_t* count);
  SocketIo Write(const char* data, size_t size, size_t* count);
  // Writes around TLS, as much as goes at once: for a client that speaks none.
  void WritePlain(const char* data, size_t size);
  // Read would return bytes without waiting.
  bool buffered() const { return session_ != nullptr && session_->buffered(); }

  // `done` gets an error code: aborted, or the socket is ready (perhaps with an error to read).
  template <typename Done>
  void WaitReadable(Done done) {
    socket_.async_wait(boost::asio::ip::tcp::socket::wait_read, std::move(done));
  }
  template <typename Done>
  void WaitWritable(Done done) {
    socket_.async_wait(boost::asio::ip::tcp::socket::wait_write, std::move(done));
  }
  boost::asio::any_io_executor executor() { return socket_.get_executor(); }

  Peer CheckPeer();
  // Bytes on the wire that the other machine has acknowledged.
  uint64_t acknowledged_bytes();
  // Of a connection that failed: because its other end took no byte for too long.
  bool timed_out() const { return timed_out_ || (session_ != nullptr && session_->timed_out()); }
  // "ip:port", and with TLS the verified subject.
  std::string PeerName() const;
  std::string ClientSubject() const { return session_ == nullptr ? "" : session_->ClientSubject(); }

  void ShutdownSend();
  void Close();

 private:
  SocketIo ResultOf(const boost::system::error_code& error);

  boost::asio::ip::tcp::socket socket_;
  const std::shared_ptr<SSL_CTX> context_;
  // After the socket, whose descriptor it uses. Made with the client's first byte.
  std::unique_ptr<TlsSession> session_;
  bool plain_client_ = false;
  bool timed_out_ = false;
  uint64_t sent_bytes_ = 0;
};

}  // namespace weft::router
