#include "router/doors/tls/material.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/small_file.h"
#include "common/status.h"
#include "openssl/crypto.h"
#include "openssl/err.h"
#include "openssl/pem.h"

namespace weft::router {
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

std::string SubjectOf(const X509* certificate) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(bytes));
}

absl::Status CheckDates(const std::string& path, const std::vector<X509Ptr>& chain,
                        absl::Time now) {
  for (const X509Ptr& certificate : chain) {
    const absl::Time begin = ToTime(X509_get0_notBefore(certificate.get()));
    const absl::Time end = ToTime(X509_get0_notAfter(certificate.get()));
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

// OpenSSL asks for a passphrase: there is nobody to ask.
int NoPassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 0;
}

absl::Status CheckFlags(const TlsFiles& files) {
  if (files.certificate_chain.empty()) {
    return absl::InvalidArgumentError(
        "--tls-cert: is missing; --tls-key and client certificates need it");
  }
  if (files.private_key.empty()) {
    return absl::InvalidArgumentError("--tls-key: is missing; --tls-cert needs its private key");
  }
  const bool none = files.clients == ClientCertificates::kNone;
  if (none == files.client_ca.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      none ? "--tls-client-certs: is none, so --tls-client-ca would check nobody; say optional or "
             "required"
           : "--tls-client-ca: is missing; client certificates are checked against it");
}

// Says which flag named a file that cannot be read; what is wrong inside says its own file.
absl::StatusOr<std::string> ReadNamed(absl::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kTlsFileBytesMax);
  if (!text.ok()) return Annotate(text.status(), flag);
  return text;
}

}  // namespace

absl::StatusOr<ClientCertificates> ParseClientCertificates(absl::string_view text) {
  if (text == "none") return ClientCertificates::kNone;
  if (text == "optional") return ClientCertificates::kOptional;
  if (text == "required") return ClientCertificates::kRequired;
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-client-certs: \"", text, "\" is not one of none, optional, required"));
}

absl::StatusOr<std::optional<TlsFiles>> TlsFilesOf(const std::string& certificate_chain,
                                                   const std::string& private_key,
                                                   const std::string& client_ca,
                                                   absl::string_view clients) {
  WEFT_ASSIGN_OR_RETURN(const ClientCertificates asked, ParseClientCertificates(clients));
  if (certificate_chain.empty() && private_key.empty()) {
    if (asked == ClientCertificates::kNone && client_ca.empty()) return std::nullopt;
    return absl::InvalidArgumentError(
        "--tls-client-certs and --tls-client-ca go with --tls-cert and --tls-key");
  }
  return TlsFiles{certificate_chain, private_key, client_ca, asked};
}

std::vector<std::string> TlsFiles::paths() const {
  std::vector<std::string> paths = {certificate_chain, private_key};
  if (!client_ca.empty()) paths.push_back(client_ca);
  return paths;
}

TlsMaterial::~TlsMaterial() { OPENSSL_cleanse(private_key_pem.data(), private_key_pem.size()); }

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

absl::StatusOr<std::shared_ptr<const TlsMaterial>> LoadTlsMaterial(const TlsFiles& files,
                                                                   absl::Time now) {
  WEFT_RETURN_IF_ERROR(CheckFlags(files));
  auto material = std::make_shared<TlsMaterial>();
  material->files = files;
  WEFT_ASSIGN_OR_RETURN(material->certificate_chain_pem,
                        ReadNamed("--tls-cert", files.certificate_chain));
  WEFT_ASSIGN_OR_RETURN(material->private_key_pem, ReadNamed("--tls-key", files.private_key));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<X509Ptr> chain,
      ParseCertificates(files.certificate_chain, material->certificate_chain_pem));
  if (chain.size() > kTlsChainMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.certificate_chain, ": holds ", chain.size(), " certificates, more than ",
        kTlsChainMax, "; the server's own and those that lead to its root are enough"));
  }
  WEFT_ASSIGN_OR_RETURN(const EvpKeyPtr key,
                        ParsePrivateKey(files.private_key, material->private_key_pem));
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    (void)TakeOpensslError();
    return absl::InvalidArgumentError(absl::StrCat(
        files.private_key, ": is not the key of the first certificate in ", files.certificate_chain,
        " (", SubjectOf(chain[0].get()), "); the server's own certificate comes first"));
  }
  WEFT_RETURN_IF_ERROR(CheckDates(files.certificate_chain, chain, now));
  material->subject = SubjectOf(chain[0].get());
  material->expires = absl::InfiniteFuture();
  for (const X509Ptr& certificate : chain) {
    material->expires = std::min(material->expires, ToTime(X509_get0_notAfter(certificate.get())));
  }
  if (files.client_ca.empty()) return std::shared_ptr<const TlsMaterial>(std::move(material));
  WEFT_ASSIGN_OR_RETURN(material->client_ca_pem, ReadNamed("--tls-client-ca", files.client_ca));
  WEFT_RETURN_IF_ERROR(ParseCertificates(files.client_ca, material->client_ca_pem).status());
  return std::shared_ptr<const TlsMaterial>(std::move(material));
}

}  // namespace weft::router
