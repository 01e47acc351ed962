#include "tests/router/doors/tls_client.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace weft::router {

TestCertificate::TestCertificate(const std::string& common_name)
    : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(X509_new(), X509_free) {
  X509* const made = certificate_.get();
  X509_set_version(made, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), 3600);
  X509_NAME* const name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(made, name);
  X509_set_pubkey(made, key_.get());
  WEFT_CHECK_GT(X509_sign(made, key_.get(), EVP_sha256()), 0);
}

void TestCertificate::UseIn(SSL_CTX* context) const {
  WEFT_CHECK_EQ(SSL_CTX_use_certificate(context, certificate_.get()), 1);
  WEFT_CHECK_EQ(SSL_CTX_use_PrivateKey(context, key_.get()), 1);
}

void TestCertificate::TrustIn(SSL_CTX* context) const {
  WEFT_CHECK_EQ(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate_.get()), 1);
}

std::shared_ptr<SSL_CTX> TestCertificate::Context() const {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  UseIn(context.get());
  return context;
}

TlsClient::TlsClient(uint16_t port, const TestCertificate* certificate)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
  WEFT_CHECK_GE(fd_, 0);
  const timeval patience = {10, 0};
  WEFT_CHECK_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  WEFT_CHECK_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  if (certificate != nullptr) certificate->UseIn(context_.get());
  ssl_ = SSL_new(context_.get());
  SSL_set_fd(ssl_, fd_);
  connected_ = SSL_connect(ssl_) == 1;
}

TlsClient::~TlsClient() {
  SSL_free(ssl_);
  close(fd_);
}

std::string TlsClient::subject() const {
  X509* const certificate = SSL_get0_peer_certificate(ssl_);
  if (certificate == nullptr) return "";
  char text[256];
  X509_NAME_oneline(X509_get_subject_name(certificate), text, sizeof(text));
  return std::string(text).substr(1);
}

void TlsClient::Send(const std::string& bytes) {
  size_t count = 0;
  WEFT_CHECK_EQ(SSL_write_ex(ssl_, bytes.data(), bytes.size(), &count), 1);
}

std::string TlsClient::ReadUntil(const std::string& mark) {
  char buffer[65536];
  size_t count = 0;
  // Each byte is looked at once: megabytes come in pieces of kilobytes, and sanitizers are slow.
  size_t found = input_.find(mark);
  while (found == std::string::npos) {
    if (SSL_read_ex(ssl_, buffer, sizeof(buffer), &count) != 1) return std::move(input_);
    const size_t from = input_.size() - std::min(input_.size(), mark.size());
    input_.append(buffer, count);
    found = input_.find(mark, from);
  }
  const size_t end = found + mark.size();
  std::string text = input_.substr(0, end);
  input_.erase(0, end);
  return text;
}

}  // namespace weft::router
