// Keys and certificates made while a test runs. Test threads only.

#pragma once

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/openssl_ptr.h"

namespace weft::router::test {

EvpKeyPtr EcKey();
EvpKeyPtr RsaKey(int bits = 2048);

struct CertificateOptions {
  std::string name = "localhost";
  absl::Time begin = absl::Now() - absl::Hours(1);
  absl::Time end = absl::Now() + absl::Hours(24 * 365);
  bool authority = false;
  // Both or none; none = signed by its own key.
  const X509* issuer = nullptr;
  EVP_PKEY* issuer_key = nullptr;
};

X509Ptr MakeCertificate(EVP_PKEY* key, const CertificateOptions& options = {});

std::string Pem(const X509* certificate);
// Encrypted where there is a passphrase.
std::string Pem(const EVP_PKEY* key, const std::string& passphrase = "");

}  // namespace weft::router::test
