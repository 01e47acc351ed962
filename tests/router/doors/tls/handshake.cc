#include "tests/router/doors/tls/handshake.h"

#include "common/check.h"
#include "openssl/err.h"

namespace weft::router::test {
namespace {

using ContextPtr = std::unique_ptr<SSL_CTX, OpensslFree<&SSL_CTX_free>>;

void Configure(SSL* client, const ClientOptions& options) {
  SSL_set_min_proto_version(client, options.version_min);
  SSL_set_max_proto_version(client, options.version_max);
  SSL_set_tlsext_host_name(client, "localhost");
  std::string protocols;
  for (const std::string& name : options.protocols) {
    protocols.push_back(static_cast<char>(name.size()));
    protocols += name;
  }
  if (!protocols.empty()) {
    WEFT_CHECK(SSL_set_alpn_protos(client, reinterpret_cast<const unsigned char*>(protocols.data()),
                                   static_cast<unsigned>(protocols.size())) == 0);
  }
  if (options.certificate != nullptr) {
    WEFT_CHECK(SSL_use_certificate(client, options.certificate) == 1);
    WEFT_CHECK(SSL_use_PrivateKey(client, options.key) == 1);
  }
  if (options.session != nullptr) WEFT_CHECK(SSL_set_session(client, options.session) == 1);
}

// One turn of one end. False when it can go no further.
bool Turn(SSL* ssl, std::string* error) {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  const int what = SSL_get_error(ssl, result);
  if (what == SSL_ERROR_NONE || what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) {
    return true;
  }
  if (error->empty()) *error = TakeOpensslError();
  return false;
}

std::string ServerName(const SSL* client) {
  const X509Ptr shown(SSL_get1_peer_certificate(client));
  if (shown == nullptr) return "";
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(shown.get()), NID_commonName, name, sizeof(name));
  return name;
}

}  // namespace

HandshakeResult Handshake(SSL_CTX* server_context, const ClientOptions& options) {
  const ContextPtr client_context(SSL_CTX_new(TLS_client_method()));
  // Old versions are offered to see them refused.
  SSL_CTX_set_security_level(client_context.get(), 0);
  const SslPtr client(SSL_new(client_context.get()));
  const SslPtr server(SSL_new(server_context));
  BIO* client_end = nullptr;
  BIO* server_end = nullptr;
  WEFT_CHECK(BIO_new_bio_pair(&client_end, 1 << 17, &server_end, 1 << 17) == 1);
  SSL_set_bio(client.get(), client_end, client_end);
  SSL_set_bio(server.get(), server_end, server_end);
  SSL_set_connect_state(client.get());
  SSL_set_accept_state(server.get());
  Configure(client.get(), options);
  HandshakeResult result;
  for (int i = 0; i < 20; ++i) {
    std::string client_error;
    const bool client_goes = Turn(client.get(), &client_error);
    const bool server_goes = Turn(server.get(), &result.error);
    if (result.error.empty()) result.error = client_error;
    if (!client_goes || !server_goes) return result;
    if (SSL_is_init_finished(client.get()) && SSL_is_init_finished(server.get())) break;
  }
  result.done = SSL_is_init_finished(client.get()) && SSL_is_init_finished(server.get());
  // Tickets of TLS 1.3 come after the handshake, with the first bytes.
  char byte = 'x';
  WEFT_CHECK(SSL_write(server.get(), &byte, 1) == 1);
  WEFT_CHECK(SSL_read(client.get(), &byte, 1) == 1);
  const unsigned char* protocol = nullptr;
  unsigned bytes = 0;
  SSL_get0_alpn_selected(client.get(), &protocol, &bytes);
  if (protocol != nullptr) result.protocol.assign(reinterpret_cast<const char*>(protocol), bytes);
  result.version = SSL_version(client.get());
  result.resumed = SSL_session_reused(client.get()) == 1;
  result.server_name = ServerName(client.get());
  result.session.reset(SSL_get1_session(client.get()));
  // A session of a connection that was not closed would not be resumed.
  SSL_shutdown(client.get());
  return result;
}

}  // namespace weft::router::test
