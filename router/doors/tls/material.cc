#include "router/doors/tls/material.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/small_file.h"
#include "common/status.h"
#include "openssl/crypto.h"

namespace weft::router {
namespace {

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
  WEFT_RETURN_IF_ERROR(CheckKey(files.private_key, key.get(), files.certificate_chain, chain));
  WEFT_RETURN_IF_ERROR(CheckDates(files.certificate_chain, chain, now));
  material->subject = SubjectOf(chain[0].get());
  material->expires = absl::InfiniteFuture();
  for (const X509Ptr& certificate : chain) {
    material->expires = std::min(material->expires, EndOf(certificate.get()));
  }
  if (files.client_ca.empty()) return std::shared_ptr<const TlsMaterial>(std::move(material));
  WEFT_ASSIGN_OR_RETURN(material->client_ca_pem, ReadNamed("--tls-client-ca", files.client_ca));
  WEFT_RETURN_IF_ERROR(ParseCertificates(files.client_ca, material->client_ca_pem).status());
  return std::shared_ptr<const TlsMaterial>(std::move(material));
}

}  // namespace weft::router
