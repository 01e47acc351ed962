#include "router/doors/grpc/credentials.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <atomic>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"

namespace weft::router {
namespace {

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free_all)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

BioPtr Reader(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free_all);
}

// The first certificate of `pem`; all of them must parse.
absl::StatusOr<X509Ptr> ReadCertificates(const std::string& pem, absl::string_view what) {
  const BioPtr reader = Reader(pem);
  X509Ptr first(nullptr, X509_free);
  while (X509* one = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    X509Ptr owned(one, X509_free);
    if (first == nullptr) first = std::move(owned);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (first == nullptr || !at_end) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not a list of PEM certificates"));
  }
  return first;
}

absl::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// Encrypted keys are refused, not asked about on the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

// Credentials by gRPC's C interface, which has two things that the C++ one has not: a look at calls
// when their headers have come, also in clear text, and certificates from memory that may change
// (gRPC asks before every handshake whether there is something new).
class DoorCredentials : public grpc::ServerCredentials {
 public:
  using OnCall = std::function<absl::Status(const GrpcCallHead& head)>;

  DoorCredentials(std::shared_ptr<GrpcCredentials> source, OnCall on_call)
      : source_(std::move(source)), on_call_(std::move(on_call)) {
    if (source_ == nullptr) {
      credentials_ = grpc_insecure_server_credentials_create();
    } else {
      uint64_t generation = 0;
      grpc_ssl_client_certificate_request_type clients = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
      if (!source_->material(&generation).client_roots_pem.empty()) {
        clients = source_->require_client_certificate()
                      ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                      : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
      }
      credentials_ = grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(clients, &Fetch, this));
    }
    WEFT_CHECK_MSG(credentials_ != nullptr, "gRPC refused to make credentials");
    grpc_server_credentials_set_auth_metadata_processor(credentials_, {&Process, nullptr, this});
  }
  ~DoorCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static void Process(void* self, grpc_auth_context* connection, const grpc_metadata* fields,
                      size_t count, grpc_process_auth_metadata_done_cb done, void* call) {
    GrpcCallHead head;
    head.connection = connection;
    for (size_t i = 0; i < count; ++i) {
      constexpr uint64_t kFieldBytes = 32;  // RFC 9113, 6.5.2
      const absl::string_view name = View(fields[i].key);
      const absl::string_view value = View(fields[i].value);
      head.header_bytes += name.size() + value.size() + kFieldBytes;
      if (name == "grpc-timeout") head.timeout_us = ParseGrpcTimeoutUs(value);
    }
    const absl::Status good = static_cast<DoorCredentials*>(self)->on_call_(head);
    done(call, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(good.code()),
         good.ok() ? nullptr : std::string(good.message()).c_str());
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<DoorCredentials*>(self)->FetchNew(config);
  }

  grpc_ssl_certificate_config_reload_status FetchNew(grpc_ssl_server_certificate_config** config) {
    uint64_t generation = 0;
    const GrpcTlsPem material = source_->material(&generation);
    if (taken_.exchange(generation) == generation) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    grpc_ssl_pem_key_cert_pair pair{material.private_key_pem.c_str(),
                                    material.certificate_chain_pem.c_str()};
    // The library wants roots also where no client is asked for a certificate; it reads them then
    // and never uses them.
    const std::string& roots = material.client_roots_pem.empty() ? material.certificate_chain_pem
                                                                 : material.client_roots_pem;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<GrpcCredentials> source_;
  const OnCall on_call_;
  std::atomic<uint64_t> taken_{0};
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

absl::Status CheckGrpcTlsPem(const GrpcTlsPem& material) {
  WEFT_ASSIGN_OR_RETURN(const X509Ptr own,
                        ReadCertificates(material.certificate_chain_pem, "the certificate chain"));
  const BioPtr reader = Reader(material.private_key_pem);
  const KeyPtr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, &NoPassphrase, nullptr),
                   EVP_PKEY_free);
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError("the private key is not a PEM key without passphrase");
  }
  const bool fits = X509_check_private_key(own.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return absl::InvalidArgumentError("the private key is not that of the first certificate");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(own.get())) < 0) {
    return absl::InvalidArgumentError("the certificate has expired");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(own.get())) > 0) {
    return absl::InvalidArgumentError("the certificate is not valid yet");
  }
  if (material.client_roots_pem.empty()) return absl::OkStatus();
  return ReadCertificates(material.client_roots_pem, "the list of client roots").status();
}

absl::StatusOr<std::shared_ptr<GrpcCredentials>> GrpcCredentials::Create(
    GrpcTlsPem material, bool require_client_certificate) {
  WEFT_RETURN_IF_ERROR(CheckGrpcTlsPem(material));
  if (require_client_certificate && material.client_roots_pem.empty()) {
    return absl::InvalidArgumentError("client certificates are required but no roots are given");
  }
  return std::shared_ptr<GrpcCredentials>(
      new GrpcCredentials(std::move(material), require_client_certificate));
}

GrpcCredentials::GrpcCredentials(GrpcTlsPem material, bool require_client_certificate)
    : require_client_certificate_(require_client_certificate), material_(std::move(material)) {}

absl::Status GrpcCredentials::Update(GrpcTlsPem material) {
  WEFT_RETURN_IF_ERROR(CheckGrpcTlsPem(material));
  absl::MutexLock lock(&mutex_);
  if (material.client_roots_pem.empty() != material_.client_roots_pem.empty()) {
    return absl::InvalidArgumentError(
        "whether client certificates are asked for cannot change while the server runs");
  }
  material_ = std::move(material);
  ++generation_;
  return absl::OkStatus();
}

GrpcTlsPem GrpcCredentials::material(uint64_t* generation) const {
  absl::MutexLock lock(&mutex_);
  *generation = generation_;
  return material_;
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    std::shared_ptr<GrpcCredentials> credentials,
    std::function<absl::Status(const GrpcCallHead&)> on_call) {
  return std::make_shared<DoorCredentials>(std::move(credentials), std::move(on_call));
}

int64_t ParseGrpcTimeoutUs(absl::string_view text) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  constexpr size_t kDigitsMax = 8;
  uint32_t count = 0;
  if (text.size() < 2 || text.size() > kDigitsMax + 1) return kNone;
  const char unit = text.back();
  text.remove_suffix(1);
  if (!absl::ascii_isdigit(static_cast<unsigned char>(text[0])) ||
      !absl::SimpleAtoi(text, &count)) {
    return kNone;
  }
  switch (unit) {
    case 'n':
      return count / 1'000;
    case 'u':
      return count;
    case 'm':
      return int64_t{count} * 1'000;
    case 'S':
      return int64_t{count} * 1'000'000;
    case 'M':
      return int64_t{count} * 60'000'000;
    case 'H':
      return int64_t{count} * 3'600'000'000;
    default:
      return kNone;
  }
}

}  // namespace weft::router
