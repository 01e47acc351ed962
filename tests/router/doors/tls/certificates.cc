#include "tests/router/doors/tls/certificates.h"

#include "common/check.h"
#include "openssl/ec.h"
#include "openssl/pem.h"
#include "openssl/rsa.h"
#include "openssl/x509v3.h"

namespace weft::router::test {
namespace {

std::string Text(BIO* bio) {
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio, &text);
  return std::string(text, static_cast<size_t>(bytes));
}

void AddExtension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  WEFT_CHECK(extension != nullptr);
  WEFT_CHECK(X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

}  // namespace

EvpKeyPtr EcKey() {
  EvpKeyPtr key(EVP_EC_gen("P-256"));
  WEFT_CHECK(key != nullptr);
  return key;
}

EvpKeyPtr RsaKey(int bits) {
  EvpKeyPtr key(EVP_RSA_gen(static_cast<size_t>(bits)));
  WEFT_CHECK(key != nullptr);
  return key;
}

X509Ptr MakeCertificate(EVP_PKEY* key, const CertificateOptions& options) {
  static long serial = 0;
  X509Ptr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(options.name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate.get(),
                       options.issuer != nullptr ? X509_get_subject_name(options.issuer) : name);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(options.begin));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(options.end));
  X509_set_pubkey(certificate.get(), key);
  AddExtension(certificate.get(), NID_basic_constraints,
               options.authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  if (!options.authority) {
    AddExtension(certificate.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  }
  EVP_PKEY* const signer = options.issuer_key != nullptr ? options.issuer_key : key;
  WEFT_CHECK(X509_sign(certificate.get(), signer, EVP_sha256()) > 0);
  return certificate;
}

std::string Pem(const X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  WEFT_CHECK(PEM_write_bio_X509(out.get(), certificate) == 1);
  return Text(out.get());
}

std::string Pem(const EVP_PKEY* key, const std::string& passphrase) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  const EVP_CIPHER* const cipher = passphrase.empty() ? nullptr : EVP_aes_256_cbc();
  const auto* const text = reinterpret_cast<const unsigned char*>(passphrase.data());
  WEFT_CHECK(
      PEM_write_bio_PKCS8PrivateKey(out.get(), key, cipher, reinterpret_cast<const char*>(text),
                                    static_cast<int>(passphrase.size()), nullptr, nullptr) == 1);
  return Text(out.get());
}

}  // namespace weft::router::test
