#include "router/doors/http/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <cerrno>

namespace weft::router {
namespace {

TlsSession::Link* LinkOf(BIO* bio) { return static_cast<TlsSession::Link*>(BIO_get_data(bio)); }

bool IsBlocked(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE, and counts nothing.
int BioWrite(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  TlsSession::Link* link = LinkOf(bio);
  const ssize_t count = send(link->fd, data, static_cast<size_t>(size), MSG_NOSIGNAL);
  if (count < 0 && IsBlocked(errno)) BIO_set_retry_write(bio);
  if (count < 0 && errno == ETIMEDOUT) link->timed_out = true;
  if (count > 0) link->sent_bytes += static_cast<uint64_t>(count);
  return static_cast<int>(count);
}

int BioRead(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  TlsSession::Link* link = LinkOf(bio);
  const ssize_t count = recv(link->fd, data, static_cast<size_t>(size), 0);
  if (count < 0 && IsBlocked(errno)) BIO_set_retry_read(bio);
  if (count < 0 && errno == ETIMEDOUT) link->timed_out = true;
  if (count == 0) link->ended = true;
  return static_cast<int>(count);
}

long BioControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return LinkOf(bio)->ended ? 1 : 0;
  return 0;
}

// Made on first use, never destroyed.
const BIO_METHOD* Method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weft socket");
    if (made != nullptr) {
      BIO_meth_set_write(made, BioWrite);
      BIO_meth_set_read(made, BioRead);
      BIO_meth_set_ctrl(made, BioControl);
    }
    return made;
  }();
  return method;
}

}  // namespace

std::unique_ptr<TlsSession> TlsSession::Create(SSL_CTX* context, int fd) {
  if (Method() == nullptr) return nullptr;
  std::unique_ptr<TlsSession> session(new TlsSession(fd));
  session->ssl_ = SSL_new(context);
  BIO* const bio = session->ssl_ == nullptr ? nullptr : BIO_new(Method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, &session->link_);
  BIO_set_init(bio, 1);
  SSL_set_bio(session->ssl_, bio, bio);  // owns it from here on
  SSL_set_mode(session->ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
  // Without renegotiation a write never has to wait for a read.
  SSL_set_options(session->ssl_, SSL_OP_NO_RENEGOTIATION);
  SSL_set_accept_state(session->ssl_);
  return session;
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

SocketIo TlsSession::Result(int code, bool* wants_write) {
  const int error = SSL_get_error(ssl_, code);
  if (error == SSL_ERROR_ZERO_RETURN) return SocketIo::kEnd;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    *wants_write = error == SSL_ERROR_WANT_WRITE;
    return SocketIo::kBlocked;
  }
  // Many clients end without a word of TLS; bodies have lengths, so nothing is cut unseen.
  return link_.ended ? SocketIo::kEnd : SocketIo::kFailed;
}

SocketIo TlsSession::Handshake(bool* wants_write) {
  ERR_clear_error();
  const int code = SSL_do_handshake(ssl_);
  return code == 1 ? SocketIo::kDone : Result(code, wants_write);
}

SocketIo TlsSession::Read(char* data, size_t room, size_t* count) {
  ERR_clear_error();
  const int code = SSL_read_ex(ssl_, data, room, count);
  bool wants_write = false;
  return code == 1 ? SocketIo::kDone : Result(code, &wants_write);
}

SocketIo TlsSession::Write(const char* data, size_t size, size_t* count) {
  ERR_clear_error();
  const int code = SSL_write_ex(ssl_, data, size, count);
  bool wants_write = false;
  if (code == 1) return SocketIo::kDone;
  const SocketIo result = Result(code, &wants_write);
  return result == SocketIo::kBlocked && wants_write ? result : SocketIo::kFailed;
}

void TlsSession::ShutdownSend() {
  ERR_clear_error();
  if (SSL_is_init_finished(ssl_) != 0) SSL_shutdown(ssl_);
}

std::string TlsSession::ClientSubject() const {
  X509* const certificate = SSL_get0_peer_certificate(ssl_);
  if (certificate == nullptr || SSL_get_verify_result(ssl_) != X509_V_OK) return "";
  BIO* const text = BIO_new(BIO_s_mem());
  if (text == nullptr) return "";
  X509_NAME_print_ex(text, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text, &data);
  std::string subject(data, size > 0 ? static_cast<size_t>(size) : 0);
  BIO_free(text);
  return subject;
}

}  // namespace weft::router
