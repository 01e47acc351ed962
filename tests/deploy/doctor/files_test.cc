// Files and ports of a server: good ones, and each kind of bad one.

#include "deploy/launcher/doctor/files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/doctor/ports.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/doctor/fake_host.h"
#include "tests/router/doors/tls/certificates.h"
#include "tests/shard/weights/goldens.h"

namespace weft::launcher {
namespace {

using test::FakeHost;
using test::Only;

Report Ports(const FakeHost& host, const ServeOptions& options) {
  Report report;
  CheckPorts(host, options, &report);
  return report;
}

TEST_CASE("A model is read up to its headers, in as many parts as there are shards", "[doctor]") {
  ServeOptions options;
  options.shard.device = "cpu";
  options.model = weft::test::GoldenPath("llama_nine_heads_f16");
  const auto found = [&] {
    Report report;
    const bool read = CheckModel(options, &report) != nullptr;
    const Finding finding = Only(report, "model");
    CHECK(read == (finding.verdict == Verdict::kOk));
    return finding;
  };
  CHECK(absl::StrContains(found().found, "llama"));
  options.shards = 12;
  CHECK(absl::StrContains(found().found, "12 shards are too many"));
  options.shards = 1;
  options.model = "/no/such/model";
  CHECK(absl::StrContains(found().found, "--model: /no/such/model"));
  // A copy that broke off.
  const weft::test::TempDir folder;
  const std::string whole = weft::test::ReadFile(weft::test::GoldenPath("llama_q4_0/model.gguf"));
  options.model = folder.Write("cut.gguf", absl::string_view(whole).substr(0, whole.size() / 2));
  CHECK(found().verdict == Verdict::kFail);
  CHECK(absl::StrContains(found().found, "cut.gguf"));
}

TEST_CASE("A run directory is made where that can be", "[doctor]") {
  const weft::test::TempDir folder;
  Report report;
  CheckRunDir({folder.path()}, &report);
  CHECK(Only(report, "run directory").verdict == Verdict::kOk);
  CHECK(std::filesystem::is_empty(folder.path()));
  const std::string is_long = absl::StrCat(folder.path(), "/", std::string(90, 'x'));
  Report second;
  CheckRunDir({is_long, folder.path()}, &second);
  CHECK(Only(second, "run directory").verdict == Verdict::kWarn);
  CHECK(absl::StrContains(Only(second, "run directory").found, "too long"));
  Report none;
  CheckRunDir({is_long, "/no/such/folder"}, &none);
  CHECK(Only(none, "run directory").verdict == Verdict::kFail);
  CHECK(absl::StrContains(Only(none, "run directory").found, "XDG_RUNTIME_DIR"));
}

TEST_CASE("A key file is read, counted and kept from others", "[doctor]") {
  FakeHost host;
  const weft::test::TempDir folder;
  ServeOptions options;
  const auto found = [&] {
    Report report;
    CheckKeys(host, options, &report);
    return Only(report, "keys");
  };
  const std::string digest(64, 'a');
  options.router.api_keys = folder.Write(
      "keys.json", absl::StrCat(R"({"tenants": [{"name": "a", "keys": [{"hash": "sha256:)", digest,
                                R"(", "expires": "2031-01-01"}]}]})"));
  CHECK(found().verdict == Verdict::kOk);
  CHECK(absl::StrContains(found().found, "1 tenants, 1 of 1 keys are valid"));
  host.others_read = true;
  CHECK(absl::StrContains(found().way_out, "chmod 600"));
  host.now = absl::FromUnixSeconds(2'000'000'000);
  CHECK(absl::StrContains(found().found, "nobody is let in"));
  options.router.api_keys = folder.Write("bad.json", R"({"tenants": 3})");
  CHECK(found().verdict == Verdict::kFail);
  CHECK(absl::StrContains(found().found, "bad.json:1"));
}

TEST_CASE("Certificate and key are read together, with their dates", "[doctor]") {
  FakeHost host;
  const weft::test::TempDir folder;
  ServeOptions options;
  const auto found = [&] {
    Report report;
    CheckTls(host, options, &report);
    return Only(report, "certificate");
  };
  const EvpKeyPtr key = router::test::EcKey();
  router::test::CertificateOptions dates;
  dates.begin = host.now - absl::Hours(24);
  dates.end = host.now + absl::Hours(24 * 90);
  const X509Ptr certificate = router::test::MakeCertificate(key.get(), dates);
  options.router.tls_cert = folder.Write("tls.crt", router::test::Pem(certificate.get()));
  options.router.tls_key = folder.Write("tls.key", router::test::Pem(key.get()));
  CHECK(found().verdict == Verdict::kOk);
  CHECK(absl::StrContains(found().found, "valid until 2030-06-15"));
  host.now += absl::Hours(24 * 80);
  CHECK(found().verdict == Verdict::kWarn);
  CHECK(absl::StrContains(found().way_out, "renew it"));
  host.now += absl::Hours(24 * 11);
  CHECK(found().verdict == Verdict::kFail);
  host.now -= absl::Hours(24 * 91);
  options.router.tls_key =
      folder.Write("other.key", router::test::Pem(router::test::EcKey().get()));
  CHECK(found().verdict == Verdict::kFail);
  CHECK(absl::StrContains(found().found, "other.key"));
  options.router.tls_cert = options.router.tls_key = "";
  options.router.tls_client_certs = "required";
  CHECK(absl::StrContains(found().found, "go with --tls-cert"));
}

TEST_CASE("Public addresses without protection are warned of", "[doctor]") {
  ServeOptions options;
  Report loopback;
  CheckOpenAddress(options, &loopback);
  CHECK(loopback.findings().empty());
  options.router.host = "0.0.0.0";
  Report open;
  CheckOpenAddress(options, &open);
  CHECK(absl::StrContains(Only(open, "public address").found, "with neither keys nor TLS"));
}

TEST_CASE("Ports that are taken, doubled or too low are named by their flags", "[doctor]") {
  FakeHost host;
  ServeOptions options;
  CHECK(Ports(host, options).Count(Verdict::kOk) == 2);
  host.taken = {8080, 9101};
  Report report = Ports(host, options);
  CHECK(Only(report, "--http-port 8080").verdict == Verdict::kFail);
  CHECK(absl::StrContains(Only(report, "--http-port 8080").found, "127.0.0.1:8080"));
  options.router.http_port = 0;
  options.router.admin_port = options.router.grpc_port;
  options.shards = 2;
  options.shard_metrics_port = 9100;
  report = Ports(host, options);
  CHECK(Only(report, "--http-port 0").verdict == Verdict::kOk);
  CHECK(Only(report, "--admin-port 8081").found == "is --grpc-port too");
  CHECK(Only(report, "--shard-metrics-port 9100").verdict == Verdict::kOk);
  CHECK(Only(report, "--shard-metrics-port 9101").verdict == Verdict::kFail);
  options.router.http_port = 80;
  CHECK(absl::StrContains(Only(Ports(host, options), "--http-port 80").way_out,
                          "CAP_NET_BIND_SERVICE"));
}

}  // namespace
}  // namespace weft::launcher
