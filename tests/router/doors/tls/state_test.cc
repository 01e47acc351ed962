#include "router/doors/tls/state.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/thread.h"
#include "tests/common/log_lines.h"
#include "tests/common/temp_dir.h"
#include "tests/router/doors/tls/certificates.h"
#include "tests/router/doors/tls/handshake.h"

namespace weft::router {
namespace {

// A folder whose pair can be renewed.
struct Folder {
  weft::test::TempDir folder;
  TlsFiles files;

  explicit Folder(const std::string& name) {
    Renew(name);
    files.certificate_chain = folder.path() + "/cert.pem";
    files.private_key = folder.path() + "/key.pem";
  }
  void Renew(const std::string& name, absl::Time end = absl::Now() + absl::Hours(24 * 365)) {
    const EvpKeyPtr key = test::EcKey();
    test::CertificateOptions options;
    options.name = name;
    options.begin = absl::Now() - absl::Hours(48);
    options.end = end;
    folder.Write("cert.pem", test::Pem(test::MakeCertificate(key.get(), options).get()));
    folder.Write("key.pem", test::Pem(key.get()));
  }
};

std::string Served(const TlsState& state) {
  return test::Handshake(state.context().get()).server_name;
}

TEST_CASE("A renewed certificate is served to new connections and told to listeners",
          "[router][tls]") {
  Folder folder("one");
  const auto state = TlsState::Create(folder.files).value();
  CHECK(state->paths() ==
        std::vector<std::string>{folder.files.certificate_chain, folder.files.private_key});
  std::vector<std::string> heard;
  state->OnChange(
      [&heard](const TlsState::MaterialRef& material) { heard.push_back(material->subject); });
  const std::shared_ptr<SSL_CTX> old = state->context();
  folder.Renew("two");
  REQUIRE(state->Reload().ok());
  CHECK(Served(*state) == "two");
  CHECK(state->material()->subject == "CN=two");
  CHECK(test::Handshake(old.get()).server_name == "one");
  // Nothing new: nothing changes.
  const std::shared_ptr<SSL_CTX> now = state->context();
  REQUIRE(state->Reload().ok());
  CHECK(state->context() == now);
  CHECK(heard == std::vector<std::string>{"CN=one", "CN=two"});
}

TEST_CASE("Bad new files leave the old certificate in service", "[router][tls]") {
  Folder folder("one");
  const auto state = TlsState::Create(folder.files).value();
  int calls = 0;
  state->OnChange([&calls](const TlsState::MaterialRef&) { ++calls; });
  folder.Renew("expired", absl::Now() - absl::Hours(24));
  CHECK(absl::StrContains(state->Reload().message(), "expired on"));
  CHECK(Served(*state) == "one");
  folder.Renew("two");
  folder.folder.Write("key.pem", test::Pem(test::EcKey().get()));
  CHECK(absl::StrContains(state->Reload().message(), "is not the key of"));
  folder.folder.Write("cert.pem", "garbage");
  CHECK_FALSE(state->Reload().ok());
  std::filesystem::remove(folder.files.certificate_chain);
  CHECK(absl::IsNotFound(state->Reload()));
  const EvpKeyPtr weak = test::RsaKey(1024);
  folder.folder.Write("cert.pem", test::Pem(test::MakeCertificate(weak.get()).get()));
  folder.folder.Write("key.pem", test::Pem(weak.get()));
  CHECK_FALSE(state->Reload().ok());
  CHECK(Served(*state) == "one");
  CHECK(calls == 1);
  folder.Renew("two");
  REQUIRE(state->Reload().ok());
  CHECK(Served(*state) == "two");
  CHECK(calls == 2);
}

TEST_CASE("Bad files are an error once for each content, and a line says that they are good again",
          "[router][tls]") {
  Folder folder("one");
  const auto state = TlsState::Create(folder.files).value();
  const weft::test::LogLines lines;
  for (const char* content : {"garbage", "rubbish"}) {
    folder.folder.Write("cert.pem", content);
    for (int i = 0; i < 3; ++i) CHECK_FALSE(state->Reload().ok());
  }
  CHECK(lines.Count("error TLS goes on with the certificate that it has") == 2);
  folder.Renew("two");
  for (int i = 0; i < 3; ++i) CHECK(state->Reload().ok());
  CHECK(lines.Count("info the TLS files are good again") == 1);
}

TEST_CASE("A TLS file that is not there is named with its flag", "[router][tls]") {
  Folder folder("one");
  const auto refusal = [](TlsFiles files) {
    return std::string(TlsState::Create(std::move(files)).status().message());
  };
  TlsFiles files = folder.files;
  files.private_key = "/no/such/key";
  CHECK(absl::StartsWith(refusal(files), "--tls-key: /no/such/key: "));
  files.certificate_chain = "/no/such/cert";
  CHECK(absl::StartsWith(refusal(files), "--tls-cert: /no/such/cert: "));
  files = folder.files;
  files.clients = ClientCertificates::kRequired;
  files.client_ca = "/no/such/ca";
  CHECK(absl::StartsWith(refusal(files), "--tls-client-ca: /no/such/ca: "));
}

TEST_CASE("A bad certificate refuses the start", "[router][tls]") {
  Folder folder("one");
  folder.Renew("one", absl::Now() - absl::Hours(24));
  CHECK(absl::StrContains(TlsState::Create(folder.files).status().message(), "expired on"));
}

TEST_CASE("Two weeks before its end a certificate is warned of, once a day", "[router][tls]") {
  Folder folder("one");
  absl::Time now = absl::Now();
  const absl::Time end = now + absl::Hours(24 * 30);
  folder.Renew("one", end);
  const auto state = TlsState::Create(folder.files, [&now] { return now; }).value();
  CHECK(state->WarnOfExpiry().empty());
  now = end - TlsState::kWarnBefore - absl::Minutes(1);
  CHECK(state->WarnOfExpiry().empty());
  now = end - TlsState::kWarnBefore + absl::Minutes(1);
  CHECK(absl::StrContains(state->WarnOfExpiry(), "CN=one expires on 20"));
  CHECK(state->WarnOfExpiry().empty());
  now += absl::Hours(23);
  CHECK(state->WarnOfExpiry().empty());
  now += absl::Hours(1);
  CHECK_FALSE(state->WarnOfExpiry().empty());
  now = end + absl::Hours(1);
  CHECK(absl::StrContains(state->WarnOfExpiry(), "CN=one expired on"));
  // Renewed: all is well again.
  folder.Renew("two", end + absl::Hours(24 * 90));
  REQUIRE(state->Reload().ok());
  CHECK(state->WarnOfExpiry().empty());
}

TEST_CASE("Connections begin while the certificate is exchanged under them", "[router][tls]") {
  Folder folder("one");
  const auto state = TlsState::Create(folder.files).value();
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  {
    std::vector<Thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back("handshake", [&] {
        while (!stop.load()) {
          if (!test::Handshake(state->context().get()).done) ++bad;
          if (state->material()->private_key_pem.empty()) ++bad;
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      folder.Renew("next");
      REQUIRE(state->Reload().ok());
    }
    stop = true;
  }
  CHECK(bad == 0);
}

}  // namespace
}  // namespace weft::router
