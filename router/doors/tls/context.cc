#include "router/doors/tls/context.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace weft::router {
namespace {

// One name, with its length in front (RFC 7301).
constexpr unsigned char kProtocols[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
constexpr char kCiphersTls12[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  unsigned char* selected = nullptr;
  if (SSL_select_next_proto(&selected, out_bytes, kProtocols, sizeof(kProtocols), offered,
                            offered_bytes) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = selected;
  return SSL_TLSEXT_ERR_OK;
}

absl::Status UseCertificates(SSL_CTX* context, const TlsMaterial& material) {
  const std::string& path = material.files.certificate_chain;
  WEFT_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain,
                        ParseCertificates(path, material.certificate_chain_pem));
  WEFT_ASSIGN_OR_RETURN(const EvpKeyPtr key,
                        ParsePrivateKey(material.files.private_key, material.private_key_pem));
  bool good = SSL_CTX_use_certificate(context, chain[0].get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  for (size_t i = 1; good && i < chain.size(); ++i) {
    good = SSL_CTX_add1_chain_cert(context, chain[i].get()) == 1;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": OpenSSL does not serve it (",
                                                 TakeOpensslError(),
                                                 "); use RSA of 2048 bits or more, or EC P-256"));
}

absl::Status CheckClients(SSL_CTX* context, const TlsMaterial& material) {
  if (material.files.clients == ClientCertificates::kNone) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities,
                        ParseCertificates(material.files.client_ca, material.client_ca_pem));
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const X509Ptr& authority : authorities) {
    if (X509_STORE_add_cert(store, authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(material.files.client_ca, ": ", TakeOpensslError()));
    }
  }
  const bool required = material.files.clients == ClientCertificates::kRequired;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeServerContext(const TlsMaterial& material) {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  WEFT_CHECK(context != nullptr);
  // Settings fail for names that this library lacks, which is a fault of this file.
  WEFT_CHECK(SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1);
  WEFT_CHECK(SSL_CTX_set_cipher_list(context.get(), kCiphersTls12) == 1);
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_NO_COMPRESSION);
  // Idle connections keep no buffers of 16 KB.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // Without it no session of a client with a certificate could be resumed.
  static constexpr unsigned char kSessionContext[] = {'w', 'e', 'f', 't'};
  WEFT_CHECK(
      SSL_CTX_set_session_id_context(context.get(), kSessionContext, sizeof(kSessionContext)) == 1);
  SSL_CTX_set_alpn_select_cb(context.get(), SelectProtocol, nullptr);
  WEFT_RETURN_IF_ERROR(UseCertificates(context.get(), material));
  WEFT_RETURN_IF_ERROR(CheckClients(context.get(), material));
  return context;
}

}  // namespace weft::router
