#include "router/doors/tls/context.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/common/temp_dir.h"
#include "tests/router/doors/tls/certificates.h"
#include "tests/router/doors/tls/handshake.h"

namespace weft::router {
namespace {

using test::ClientOptions;
using test::Handshake;
using test::HandshakeResult;

// Makes files and contexts from them.
struct Server {
  weft::test::TempDir folder;
  TlsFiles files;

  explicit Server(EvpKeyPtr key = test::EcKey()) {
    files.certificate_chain =
        folder.Write("cert.pem", test::Pem(test::MakeCertificate(key.get()).get()));
    files.private_key = folder.Write("key.pem", test::Pem(key.get()));
  }
  std::shared_ptr<SSL_CTX> Context() const {
    return MakeServerContext(*LoadTlsMaterial(files, absl::Now()).value()).value();
  }
};

TEST_CASE("Clients of TLS 1.2 and 1.3 are served, with EC and with RSA", "[router][tls]") {
  for (const bool rsa : {false, true}) {
    const Server server(rsa ? test::RsaKey() : test::EcKey());
    const auto context = server.Context();
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      ClientOptions options;
      options.version_max = version;
      const HandshakeResult result = Handshake(context.get(), options);
      INFO(result.error);
      CHECK(result.done);
      CHECK(result.version == version);
      CHECK(result.server_name == "localhost");
    }
    ClientOptions old;
    old.version_max = TLS1_1_VERSION;
    CHECK_FALSE(Handshake(context.get(), old).done);
  }
}

TEST_CASE("HTTP/1.1 is agreed on, and nothing else", "[router][tls]") {
  const Server server;
  const auto context = server.Context();
  ClientOptions options;
  options.protocols = {"h2", "http/1.1"};
  CHECK(Handshake(context.get(), options).protocol == "http/1.1");
  options.protocols = {"h2"};
  CHECK_FALSE(Handshake(context.get(), options).done);
  options.protocols = {};
  CHECK(Handshake(context.get(), options).done);
}

TEST_CASE("A ticket resumes a session, but not at the next certificate's context",
          "[router][tls]") {
  const Server server;
  const auto context = server.Context();
  const HandshakeResult first = Handshake(context.get());
  REQUIRE(first.session != nullptr);
  CHECK_FALSE(first.resumed);
  ClientOptions again;
  again.session = first.session.get();
  CHECK(Handshake(context.get(), again).resumed);
  const HandshakeResult fresh = Handshake(server.Context().get(), again);
  CHECK(fresh.done);
  CHECK_FALSE(fresh.resumed);
}

TEST_CASE("Client certificates are checked as the operator says", "[router][tls]") {
  Server server;
  const EvpKeyPtr ca_key = test::EcKey();
  test::CertificateOptions authority;
  authority.name = "clients";
  authority.authority = true;
  const X509Ptr ca = test::MakeCertificate(ca_key.get(), authority);
  server.files.client_ca = server.folder.Write("ca.pem", test::Pem(ca.get()));
  const EvpKeyPtr key = test::EcKey();
  test::CertificateOptions client;
  client.name = "alice";
  client.issuer = ca.get();
  client.issuer_key = ca_key.get();
  const X509Ptr good = test::MakeCertificate(key.get(), client);
  client.begin = absl::Now() - absl::Hours(2);
  client.end = absl::Now() - absl::Hours(1);
  const X509Ptr expired = test::MakeCertificate(key.get(), client);
  const X509Ptr stranger = test::MakeCertificate(key.get());
  for (const auto clients : {ClientCertificates::kOptional, ClientCertificates::kRequired}) {
    server.files.clients = clients;
    const auto context = server.Context();
    ClientOptions options;
    options.key = key.get();
    options.certificate = good.get();
    const HandshakeResult result = Handshake(context.get(), options);
    INFO(result.error);
    CHECK(result.done);
    options.session = result.session.get();
    CHECK(Handshake(context.get(), options).resumed);
    options.session = nullptr;
    options.certificate = expired.get();
    CHECK(Handshake(context.get(), options).error == "certificate verify failed");
    options.certificate = stranger.get();
    CHECK(Handshake(context.get(), options).error == "certificate verify failed");
    CHECK(Handshake(context.get()).done == (clients == ClientCertificates::kOptional));
  }
}

}  // namespace
}  // namespace weft::router
