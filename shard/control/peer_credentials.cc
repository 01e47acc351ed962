#include "shard/control/peer_credentials.h"

#include <atomic>
#include <utility>

#include "common/check.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"

namespace weft::shard {
namespace {

// By gRPC's C interface: in the C++ one a certificate is given once and for all.
class PeerCredentials : public grpc::ServerCredentials {
 public:
  explicit PeerCredentials(std::unique_ptr<PeerTlsSource> source)
      : source_(std::move(source)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, &Fetch, this))) {
    WEFT_CHECK_MSG(credentials_ != nullptr, "gRPC refused to make credentials");
  }
  ~PeerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<PeerCredentials*>(self)->FetchNew(config);
  }

  grpc_ssl_certificate_config_reload_status FetchNew(grpc_ssl_server_certificate_config** config) {
    const bool renewed = source_->Refresh();
    if (given_.exchange(true) && !renewed) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const PeerTls tls = source_->tls();
    const grpc_ssl_pem_key_cert_pair pair{tls.key_pem.c_str(), tls.cert_pem.c_str()};
    *config = grpc_ssl_server_certificate_config_create(tls.ca_pem.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::unique_ptr<PeerTlsSource> source_;
  // Something was given to gRPC.
  std::atomic<bool> given_{false};
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakePeerCredentials(
    std::unique_ptr<PeerTlsSource> source) {
  return std::make_shared<PeerCredentials>(std::move(source));
}

}  // namespace weft::shard
