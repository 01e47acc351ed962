#include "common/tls_pem.h"

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/small_file.h"
#include "common/status.h"
#include "openssl/err.h"
#include "openssl/pem.h"

namespace weft {
namespace {

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  // Fails for what no parser lets through; long ago is then the safe side.
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

// OpenSSL asks for a passphrase: there is nobody to ask.
int NoPassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 0;
}

// The certificates of the file that `flag` names.
absl::StatusOr<std::vector<X509Ptr>> ReadCertificates(absl::string_view flag,
                                                      const std::string& path, std::string* pem) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kTlsFileBytesMax);
  if (!text.ok()) return Annotate(text.status(), flag);
  *pem = *std::move(text);
  absl::StatusOr<std::vector<X509Ptr>> certificates = ParseCertificates(path, *pem);
  if (!certificates.ok()) return Annotate(certificates.status(), flag);
  return certificates;
}

// A bundle may hold the authority that was, beside the one that is: one of them is enough.
absl::Status CheckAnyDate(const std::string& path, const std::vector<X509Ptr>& authorities,
                          absl::Time now) {
  for (const X509Ptr& one : authorities) {
    if (now >= ToTime(X509_get0_notBefore(one.get())) && now < EndOf(one.get())) {
      return absl::OkStatus();
    }
  }
  return CheckDates(path, authorities, now);
}

}  // namespace

absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(const std::string& path,
                                                       const std::string& pem) {
  std::vector<X509Ptr> certificates;
  const BioPtr in = ReadBio(pem);
  ERR_clear_error();
  while (true) {
    X509Ptr certificate(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    certificates.push_back(std::move(certificate));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string reason = TakeOpensslError();
  if (!at_end) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": certificate ", certificates.size() + 1,
                                                   " cannot be read (", reason,
                                                   "); copy the file again"));
  }
  if (certificates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": holds no PEM certificate (-----BEGIN CERTIFICATE-----); `openssl "
                     "x509 -inform der -in FILE` turns DER into PEM"));
  }
  return certificates;
}

absl::StatusOr<EvpKeyPtr> ParsePrivateKey(const std::string& path, const std::string& pem) {
  const BioPtr in = ReadBio(pem);
  bool asked = false;
  EvpKeyPtr key(PEM_read_bio_PrivateKey(in.get(), nullptr, NoPassphrase, &asked));
  const std::string reason = TakeOpensslError();
  if (key != nullptr) return key;
  if (asked) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is encrypted; `openssl pkey -in FILE -out NEW` writes it without a passphrase"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": holds no PEM private key that can be read (", reason,
                   "); expected -----BEGIN PRIVATE KEY-----"));
}

std::string SubjectOf(const X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(bytes));
}

absl::Time EndOf(const X509* certificate) { return ToTime(X509_get0_notAfter(certificate)); }

absl::Status CheckDates(const std::string& path, const std::vector<X509Ptr>& certificates,
                        absl::Time now) {
  for (const X509Ptr& certificate : certificates) {
    const absl::Time begin = ToTime(X509_get0_notBefore(certificate.get()));
    const absl::Time end = EndOf(certificate.get());
    if (now >= end) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": the certificate of ",
                                                        SubjectOf(certificate.get()),
                                                        " expired on ", Day(end), "; renew it"));
    }
    if (now < begin) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": the certificate of ", SubjectOf(certificate.get()),
                       " is valid from ", Day(begin), " on; is this machine's clock right?"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& key_path, const EVP_PKEY* key,
                      const std::string& chain_path, const std::vector<X509Ptr>& chain) {
  if (X509_check_private_key(chain[0].get(), key) == 1) return absl::OkStatus();
  (void)TakeOpensslError();
  return absl::InvalidArgumentError(
      absl::StrCat(key_path, ": is not the key of the first certificate in ", chain_path, " (",
                   SubjectOf(chain[0].get()), "); the server's own certificate comes first"));
}

namespace {

// Whether TLS 1.3 can sign with the key at the level of security that OpenSSL's defaults ask for:
// it would load any other, and no connection would come about.
absl::Status CheckKeyKind(const std::string& path, const EVP_PKEY* key) {
  constexpr int kRsaBitsMin = 2048;
  switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA:
      if (EVP_PKEY_get_bits(key) >= kRsaBitsMin) return absl::OkStatus();
      break;
    case EVP_PKEY_EC: {
      char curve[64] = "";
      EVP_PKEY_get_group_name(key, curve, sizeof(curve), nullptr);
      for (const char* usable : {"prime256v1", "secp384r1", "secp521r1"}) {
        if (absl::string_view(curve) == usable) return absl::OkStatus();
      }
      break;
    }
    case EVP_PKEY_ED25519:
      return absl::OkStatus();
    default:
      break;
  }
  (void)TakeOpensslError();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": no connection can be made with a key of this kind; expected RSA of at least ",
      kRsaBitsMin, " bits, EC on P-256, P-384 or P-521, or Ed25519"));
}

}  // namespace

absl::StatusOr<PeerTls> LoadPeerTls(absl::string_view flag, const PeerTlsFiles& files,
                                    absl::Time now) {
  const std::string cert_flag = absl::StrCat(flag, "-cert");
  const std::string key_flag = absl::StrCat(flag, "-key");
  const std::string ca_flag = absl::StrCat(flag, "-ca");
  PeerTls tls;
  WEFT_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain,
                        ReadCertificates(cert_flag, files.cert, &tls.cert_pem));
  WEFT_RETURN_IF_ERROR(Annotate(CheckDates(files.cert, chain, now), cert_flag));
  absl::StatusOr<std::string> key_pem = ReadSmallFile(files.key, kTlsFileBytesMax);
  if (!key_pem.ok()) return Annotate(key_pem.status(), key_flag);
  tls.key_pem = *std::move(key_pem);
  absl::StatusOr<EvpKeyPtr> key = ParsePrivateKey(files.key, tls.key_pem);
  if (!key.ok()) return Annotate(key.status(), key_flag);
  WEFT_RETURN_IF_ERROR(Annotate(CheckKey(files.key, key->get(), files.cert, chain), key_flag));
  WEFT_RETURN_IF_ERROR(Annotate(CheckKeyKind(files.key, key->get()), key_flag));
  WEFT_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities,
                        ReadCertificates(ca_flag, files.ca, &tls.ca_pem));
  WEFT_RETURN_IF_ERROR(Annotate(CheckAnyDate(files.ca, authorities, now), ca_flag));
  return tls;
}

}  // namespace weft
