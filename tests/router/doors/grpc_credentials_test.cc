// TLS on the gRPC door: certificates made here, replaced while the server runs.

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/credentials.h"
#include "router/doors/grpc/credentials.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/raw_client.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

std::string PemOf(const std::function<int(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
  WEFT_CHECK_EQ(write(bio.get()), 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// A certificate for localhost, signed by itself; valid from an hour ago until `ends_s` from now.
GrpcTlsPem MakeMaterial(long serial, long ends_s = 3600) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509* x509 = certificate.get();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), serial);
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), ends_s);
  X509_set_pubkey(x509, key.get());
  X509_NAME* name = X509_get_subject_name(x509);
  const std::string common = absl::StrCat("weft test ", serial);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509, name);
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, x509, x509, nullptr, nullptr, 0);
  for (const auto& [id, value] :
       {std::pair{NID_subject_alt_name, "DNS:localhost"}, {NID_basic_constraints, "CA:TRUE"}}) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
    WEFT_CHECK(extension != nullptr);
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  }
  WEFT_CHECK(X509_sign(x509, key.get(), EVP_sha256()) > 0);
  GrpcTlsPem material;
  material.certificate_chain_pem = PemOf([&](BIO* bio) { return PEM_write_bio_X509(bio, x509); });
  material.private_key_pem = PemOf([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return material;
}

struct TlsServer {
  explicit TlsServer(std::shared_ptr<GrpcCredentials> credentials, GrpcServerOptions options = {})
      : doors(&intake, &probe, {}) {
    testing::KeepGrpcThreads();
    options.credentials = std::move(credentials);
    auto started = GrpcServer::Start(options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }
  ~TlsServer() { server->Stop(absl::ZeroDuration()); }

  // Whether a new connection that trusts `roots` alone gets an answer.
  bool Answers(const std::string& roots, const GrpcTlsPem& own = {}) const {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = roots;
    ssl.pem_cert_chain = own.certificate_chain_pem;
    ssl.pem_private_key = own.private_key_pem;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetSslTargetNameOverride("localhost");
    const auto stub = weft::v1::TextGeneration::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", server->port()), grpc::SslCredentials(ssl), arguments));
    grpc::ClientContext context;
    weft::v1::GetModelResponse response;
    return stub->GetModel(&context, {}, &response).ok();
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
};

TEST_CASE("The gRPC door serves TLS and takes a new certificate while it runs", "[router][grpc]") {
  const GrpcTlsPem first = MakeMaterial(1);
  const GrpcTlsPem second = MakeMaterial(2);
  auto credentials = GrpcCredentials::Create(first, false);
  REQUIRE(credentials.ok());
  TlsServer server(*credentials);
  CHECK(server.Answers(first.certificate_chain_pem));
  CHECK_FALSE(server.Answers(second.certificate_chain_pem));
  REQUIRE((*credentials)->Update(second).ok());
  CHECK(server.Answers(second.certificate_chain_pem));
  CHECK_FALSE(server.Answers(first.certificate_chain_pem));
}

TEST_CASE("Bad TLS material is named and leaves the old in place", "[router][grpc]") {
  const GrpcTlsPem good = MakeMaterial(1);
  const GrpcTlsPem other = MakeMaterial(2);
  auto credentials = GrpcCredentials::Create(good, false);
  REQUIRE(credentials.ok());
  TlsServer server(*credentials);
  const auto error = [&](GrpcTlsPem bad) {
    const absl::Status status = (*credentials)->Update(std::move(bad));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(GrpcCredentials::Create(good, true).status().code() ==
          absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK(absl::StrContains(error({good.certificate_chain_pem, other.private_key_pem, ""}),
                          "not that of the first certificate"));
  CHECK(absl::StrContains(error(MakeMaterial(3, -60)), "expired"));
  CHECK(absl::StrContains(error({"nonsense", good.private_key_pem, ""}), "certificate chain"));
  CHECK(absl::StrContains(error({good.certificate_chain_pem + "-----BEGIN CERTIFICATE-----\nxx\n",
                                 good.private_key_pem, ""}),
                          "certificate chain"));
  CHECK(absl::StrContains(error({good.certificate_chain_pem, "nonsense", ""}), "private key"));
  GrpcTlsPem roots = good;
  roots.client_roots_pem = other.certificate_chain_pem;
  CHECK(absl::StrContains(error(roots), "cannot change"));
  CHECK(server.Answers(good.certificate_chain_pem));
}

TEST_CASE("The gRPC door asks for client certificates when told to", "[router][grpc]") {
  GrpcTlsPem own = MakeMaterial(1);
  const GrpcTlsPem client = MakeMaterial(2);
  const GrpcTlsPem stranger = MakeMaterial(3);
  own.client_roots_pem = client.certificate_chain_pem;
  auto credentials = GrpcCredentials::Create(own, true);
  REQUIRE(credentials.ok());
  TlsServer server(*credentials);
  CHECK(server.Answers(own.certificate_chain_pem, client));
  CHECK_FALSE(server.Answers(own.certificate_chain_pem));
  CHECK_FALSE(server.Answers(own.certificate_chain_pem, stranger));
}

TEST_CASE("TLS handshakes under way are bounded", "[router][grpc]") {
  GrpcServerOptions options;
  options.starting_connections_max = 4;
  const GrpcTlsPem own = MakeMaterial(1);
  auto credentials = GrpcCredentials::Create(own, false);
  REQUIRE(credentials.ok());
  TlsServer server(*credentials, options);
  std::vector<std::unique_ptr<RawClient>> mute;
  for (int i = 0; i < 16; ++i) {
    mute.push_back(std::make_unique<RawClient>(static_cast<uint16_t>(server.server->port())));
  }
  CHECK(server.Answers(own.certificate_chain_pem));
  for (int i = 0; i < 12; ++i) CHECK(mute[i]->ReadToEnd().has_value());
}

}  // namespace
}  // namespace weft::router
