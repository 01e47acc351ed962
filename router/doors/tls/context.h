// Turns TLS material into OpenSSL's server context for the HTTP door. Stateless; called at start-up
// and on reload.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "openssl/ssl.h"
#include "router/doors/tls/material.h"

namespace weft::router {

// TLS 1.2 and 1.3, the server's order of ciphers, forward secrecy and authenticated encryption
// only, ALPN http/1.1 (a client that offers others alone is refused), no renegotiation, tickets but
// no cache of sessions, which would grow. Keys of tickets are the context's own: after a reload
// nobody resumes a session that an old file let in. INVALID_ARGUMENT, with the file, when OpenSSL
// takes the certificate for too weak.
absl::StatusOr<std::shared_ptr<SSL_CTX>> MakeServerContext(const TlsMaterial& material);

}  // namespace weft::router
