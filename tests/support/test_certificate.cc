#include "tests/support/test_certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::testing {

void WriteTestCertificate(const std::string& directory, const char* kind) {
  const bool rsa = absl::string_view(kind) == "RSA";
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      rsa ? EVP_RSA_gen(1024) : EVP_EC_gen(kind), &EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> cert(X509_new(), &X509_free);
  WEFT_CHECK(key != nullptr && cert != nullptr);
  X509_set_version(cert.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 24 * 3600);
  X509_set_pubkey(cert.get(), key.get());
  X509_NAME* name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert.get(), name);
  for (const auto& [nid, value] : {std::pair(NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1"),
                                   std::pair(NID_basic_constraints, "critical,CA:TRUE")}) {
    const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, nid, value), &X509_EXTENSION_free);
    WEFT_CHECK(extension != nullptr && X509_add_ext(cert.get(), extension.get(), -1) == 1);
  }
  WEFT_CHECK(X509_sign(cert.get(), key.get(), EVP_sha256()) > 0);
  const auto write = [&](const char* file, auto put) {
    const std::unique_ptr<FILE, decltype(&fclose)> out(
        fopen(absl::StrCat(directory, "/", file).c_str(), "w"), &fclose);
    WEFT_CHECK(out != nullptr && put(out.get()) == 1);
  };
  const auto put_cert = [&](FILE* out) { return PEM_write_X509(out, cert.get()); };
  write("cert.pem", put_cert);
  write("ca.pem", put_cert);
  write("key.pem", [&](FILE* out) {
    return PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

}  // namespace weft::testing
