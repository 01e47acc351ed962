// A TLS handshake between two ends in memory: no socket, no thread. Test threads only.

#pragma once

#include <string>
#include <vector>

#include "common/openssl_ptr.h"

namespace weft::router::test {

struct ClientOptions {
  int version_max = TLS1_3_VERSION;
  int version_min = TLS1_VERSION;
  // Offered by ALPN, empty = no ALPN.
  std::vector<std::string> protocols;
  // Shown when asked for; both or none.
  X509* certificate = nullptr;
  EVP_PKEY* key = nullptr;
  SSL_SESSION* session = nullptr;
};

struct HandshakeResult {
  bool done = false;
  // Why the server, or else the client, gave up.
  std::string error;
  std::string protocol;
  int version = 0;
  bool resumed = false;
  // Subject of what the server showed.
  std::string server_name;
  // The session that the server's tickets allow; null without one.
  std::unique_ptr<SSL_SESSION, OpensslFree<&SSL_SESSION_free>> session;
};

HandshakeResult Handshake(SSL_CTX* server, const ClientOptions& options = {});

}  // namespace weft::router::test
