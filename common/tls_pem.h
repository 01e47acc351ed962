// PEM files of TLS, read and checked before anybody uses them: what the public ports show, and what
// router and shards show each other. Errors begin with the file's path and end with the way out.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/openssl_ptr.h"

namespace weft {

// All certificates of a PEM text, in order. INVALID_ARGUMENT, beginning with `path`, when there is
// none or one is damaged.
absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(const std::string& path,
                                                       const std::string& pem);
absl::StatusOr<EvpKeyPtr> ParsePrivateKey(const std::string& path, const std::string& pem);

std::string SubjectOf(const X509* certificate);
// The first moment at which it is no longer valid.
absl::Time EndOf(const X509* certificate);

// Whether every certificate is valid at `now`; names the first that is not.
absl::Status CheckDates(const std::string& path, const std::vector<X509Ptr>& certificates,
                        absl::Time now);
// Whether `key` is that of the first certificate of `chain`.
absl::Status CheckKey(const std::string& key_path, const EVP_PKEY* key,
                      const std::string& chain_path, const std::vector<X509Ptr>& chain);

// What one side of mutual TLS between router and shard shows and trusts.
struct PeerTlsFiles {
  // PEM: own certificate first, its key without a passphrase, the authority of the other side.
  std::string cert;
  std::string key;
  std::string ca;
};

struct PeerTls {
  std::string cert_pem;
  std::string key_pem;
  std::string ca_pem;

  friend bool operator==(const PeerTls&, const PeerTls&) = default;
};

// Reads all three and checks them: the key is the certificate's and of a kind that TLS can use, the
// chain and at least one of the authorities are valid at `now`. `flag` is how the flags' names
// begin ("--shard-tls" of
// --shard-tls-cert, -key and -ca); errors begin with the one that named the file.
absl::StatusOr<PeerTls> LoadPeerTls(absl::string_view flag, const PeerTlsFiles& files,
                                    absl::Time now);

}  // namespace weft
