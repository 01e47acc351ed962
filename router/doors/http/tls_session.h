// The server's side of TLS on one non-blocking socket, used when the socket is ready and never
// waiting itself. OpenSSL works on the descriptor: Asio's ssl::stream would keep 34 KB of buffers
// for every idle connection, and cannot be used by readiness. Lives on its connection's thread.

#pragma once

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace weft::router {

// What became of an attempt to read or write.
enum class SocketIo {
  kDone,
  kBlocked,  // wait until the socket is readable (reads) or writable (writes)
  kEnd,      // the other end has said that no more comes
  kFailed    // the connection is broken
};

class TlsSession {
 public:
  // Serves on `fd`, which must outlive this. Null when OpenSSL has no memory.
  static std::unique_ptr<TlsSession> Create(SSL_CTX* context, int fd);
  ~TlsSession();

  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Goes on with the handshake; blocked, *wants_write says for what.
  SocketIo Handshake(bool* wants_write);
  SocketIo Read(char* data, size_t room, size_t* count);
  // After kBlocked the next call begins with the same bytes.
  SocketIo Write(const char* data, size_t size, size_t* count);
  // Read would return bytes without waiting for the socket.
  bool buffered() const { return SSL_pending(ssl_) > 0; }
  // Says that no more comes, as far as the socket takes it.
  void ShutdownSend();

  // Encrypted bytes given to the socket.
  uint64_t sent_bytes() const { return link_.sent_bytes; }
  // The socket failed because its other end took no byte for too long.
  bool timed_out() const { return link_.timed_out; }
  // Subject of the client's certificate (RFC 2253); empty without a verified one.
  std::string ClientSubject() const;

  // What OpenSSL reads and writes through.
  struct Link {
    int fd = -1;
    uint64_t sent_bytes = 0;
    bool ended = false;
    bool timed_out = false;
  };

 private:
  explicit TlsSession(int fd) { link_.fd = fd; }
  SocketIo Result(int code, bool* wants_write);

  Link link_;
  SSL* ssl_ = nullptr;
};

}  // namespace weft::router
