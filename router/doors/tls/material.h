// What a TLS server shows and checks: certificate chain, private key, and the authorities of client
// certificates, read from PEM files and checked before anybody uses them. Values, immutable once
// loaded; made at start-up and on reload (state.h).

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tls_pem.h"

namespace weft::router {

// Whether clients show certificates of their own.
enum class ClientCertificates {
  kNone,
  // Who shows one must show a good one.
  kOptional,
  kRequired,
};

// "none", "optional" or "required". INVALID_ARGUMENT, naming --tls-client-certs, otherwise.
absl::StatusOr<ClientCertificates> ParseClientCertificates(absl::string_view text);

struct TlsFiles {
  // PEM: the server's certificate first, then those that lead to its root.
  std::string certificate_chain;
  // PEM, without a passphrase; may be the same file.
  std::string private_key;
  // PEM: authorities of client certificates. Empty if and only if clients show none.
  std::string client_ca;
  ClientCertificates clients = ClientCertificates::kNone;

  // Those that are read.
  std::vector<std::string> paths() const;
};

// What --tls-cert, --tls-key, --tls-client-ca and --tls-client-certs ask for together; none = the
// public ports speak in clear. INVALID_ARGUMENT, naming the flags, for what does not go together.
absl::StatusOr<std::optional<TlsFiles>> TlsFilesOf(const std::string& certificate_chain,
                                                   const std::string& private_key,
                                                   const std::string& client_ca,
                                                   absl::string_view clients);

struct TlsMaterial {
  TlsMaterial() = default;
  TlsMaterial(const TlsMaterial&) = delete;
  TlsMaterial& operator=(const TlsMaterial&) = delete;
  // Overwrites the key.
  ~TlsMaterial();

  TlsFiles files;
  std::string certificate_chain_pem;
  std::string private_key_pem;
  std::string client_ca_pem;
  // Of the server's certificate, for logs.
  std::string subject;
  // When the first certificate of the chain to expire does so.
  absl::Time expires;
};

// Certificates that a server may send in one handshake.
inline constexpr size_t kTlsChainMax = 10;

// Reads and checks: files are regular and readable; there are certificates and a key in them; the
// key is the first certificate's; every certificate of the chain is valid at `now`. Errors begin
// with the file's path (the flag's name when a path is missing) and end with the way out.
absl::StatusOr<std::shared_ptr<const TlsMaterial>> LoadTlsMaterial(const TlsFiles& files,
                                                                   absl::Time now);

}  // namespace weft::router
