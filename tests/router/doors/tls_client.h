// TLS for tests: a self-signed certificate made on the spot, and a blocking client that trusts
// anything and gives up after 10 s.

#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>

namespace weft::router {

class TestCertificate {
 public:
  explicit TestCertificate(const std::string& common_name);

  // A server's context with this certificate.
  std::shared_ptr<SSL_CTX> Context() const;
  // Peers of `context` that show this certificate are verified.
  void TrustIn(SSL_CTX* context) const;
  void UseIn(SSL_CTX* context) const;

 private:
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> certificate_;
};

class TlsClient {
 public:
  // Connects and shakes hands, with `certificate` when there is one.
  explicit TlsClient(uint16_t port, const TestCertificate* certificate = nullptr);
  ~TlsClient();

  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool connected() const { return connected_; }
  // Of the server's certificate.
  std::string subject() const;
  void Send(const std::string& bytes);
  // Reads until `mark` has come, and returns all up to there; what came when the connection ended.
  std::string ReadUntil(const std::string& mark);

 private:
  int fd_ = -1;
  std::shared_ptr<SSL_CTX> context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
  std::string input_;
};

}  // namespace weft::router
