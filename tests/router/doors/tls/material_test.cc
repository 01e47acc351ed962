#include "router/doors/tls/material.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "router/doors/tls/context.h"
#include "tests/common/temp_dir.h"
#include "tests/router/doors/tls/certificates.h"

namespace weft::router {
namespace {

// A folder with a good pair; each test breaks something.
struct Files {
  weft::test::TempDir folder;
  EvpKeyPtr key = test::EcKey();
  X509Ptr certificate = test::MakeCertificate(key.get());
  TlsFiles files;

  Files() {
    files.certificate_chain = folder.Write("cert.pem", test::Pem(certificate.get()));
    files.private_key = folder.Write("key.pem", test::Pem(key.get()));
  }
  absl::StatusOr<std::shared_ptr<const TlsMaterial>> Load(absl::Time now = absl::Now()) const {
    return LoadTlsMaterial(files, now);
  }
  std::string Error(absl::Time now = absl::Now()) const {
    return std::string(Load(now).status().message());
  }
};

TEST_CASE("A certificate with its key is loaded, with subject and end", "[router][tls]") {
  Files files;
  const auto material = files.Load().value();
  CHECK(material->subject == "CN=localhost");
  CHECK(material->expires > absl::Now() + absl::Hours(24 * 364));
  CHECK(material->certificate_chain_pem == test::Pem(files.certificate.get()));
  CHECK(material->private_key_pem == test::Pem(files.key.get()));
  // RSA, and both in one file.
  const EvpKeyPtr rsa = test::RsaKey();
  const X509Ptr certificate = test::MakeCertificate(rsa.get());
  const std::string both = files.folder.Write(
      "both.pem", absl::StrCat(test::Pem(rsa.get()), test::Pem(certificate.get())));
  files.files.certificate_chain = both;
  files.files.private_key = both;
  CHECK(files.Load().ok());
}

TEST_CASE("A chain ends when its first certificate does", "[router][tls]") {
  Files files;
  const EvpKeyPtr ca_key = test::EcKey();
  test::CertificateOptions options;
  options.authority = true;
  options.end = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 3600);
  const X509Ptr ca = test::MakeCertificate(ca_key.get(), options);
  files.folder.Write("cert.pem",
                     absl::StrCat(test::Pem(files.certificate.get()), test::Pem(ca.get())));
  CHECK(files.Load().value()->expires == options.end);
  CHECK(absl::StrContains(files.Error(options.end), "expired on"));
  std::string many;
  for (size_t i = 0; i <= kTlsChainMax; ++i) many += test::Pem(files.certificate.get());
  files.folder.Write("cert.pem", many);
  CHECK(absl::StrContains(files.Error(), "more than 10"));
}

TEST_CASE("A certificate out of its time is refused with its dates", "[router][tls]") {
  Files files;
  const std::string late = files.Error(absl::Now() + absl::Hours(24 * 366));
  CHECK(absl::StartsWith(late, files.files.certificate_chain));
  CHECK(absl::StrContains(late, "CN=localhost expired on 20"));
  CHECK(absl::StrContains(late, "renew"));
  const std::string early = files.Error(absl::Now() - absl::Hours(24));
  CHECK(absl::StrContains(early, "is valid from 20"));
  CHECK(absl::StrContains(early, "clock"));
}

TEST_CASE("A key of another certificate is refused by both files' names", "[router][tls]") {
  Files files;
  for (const std::string& other :
       {test::Pem(test::EcKey().get()), test::Pem(test::RsaKey().get())}) {
    files.folder.Write("key.pem", other);
    const std::string error = files.Error();
    CHECK(absl::StartsWith(error, files.files.private_key));
    CHECK(absl::StrContains(error, files.files.certificate_chain));
    CHECK(absl::StrContains(error, "is not the key of"));
  }
}

TEST_CASE("Files that hold no certificate or key are refused with the way out", "[router][tls]") {
  Files files;
  const std::string good = test::Pem(files.certificate.get());
  const auto with_cert = [&](absl::string_view text) {
    files.folder.Write("cert.pem", text);
    return files.Error();
  };
  for (const std::string& text : {std::string(), std::string("garbage"), test::Pem(files.key.get()),
                                  std::string("\x30\x82\x01\x00", 4)}) {
    CHECK(absl::StrContains(with_cert(text), "cert.pem: holds no PEM certificate"));
  }
  // The first bytes of the content, and a character that base64 does not have.
  const size_t content = good.find('\n') + 1;
  for (const absl::string_view damage : {"AAAA", "!!!!"}) {
    const std::string damaged =
        absl::StrCat(good.substr(0, content), damage, good.substr(content + 4));
    CHECK(absl::StrContains(with_cert(damaged), "cert.pem: certificate 1 cannot be read"));
  }
  CHECK(absl::StrContains(with_cert(absl::StrCat(good, good.substr(0, 200))),
                          "cert.pem: certificate 2 cannot be read"));
  files.folder.Write("cert.pem", good);
  for (const std::string& text :
       {std::string(), std::string("garbage"), good, test::Pem(files.key.get()).substr(0, 100)}) {
    files.folder.Write("key.pem", text);
    CHECK(absl::StrContains(files.Error(), "key.pem: holds no PEM private key"));
  }
  files.folder.Write("key.pem", test::Pem(files.key.get(), "secret"));
  CHECK(absl::StrContains(files.Error(), "key.pem: is encrypted; `openssl pkey"));
}

TEST_CASE("What is no file is refused at once, a FIFO too", "[router][tls]") {
  Files files;
  const std::string fifo = files.folder.path() + "/fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  for (const std::string& path : {fifo, files.folder.path(), std::string("/dev/zero")}) {
    TlsFiles broken = files.files;
    broken.private_key = path;
    CHECK(absl::StrContains(LoadTlsMaterial(broken, absl::Now()).status().message(),
                            "is not a regular file"));
    broken = files.files;
    broken.certificate_chain = path;
    CHECK(absl::StrContains(LoadTlsMaterial(broken, absl::Now()).status().message(),
                            "is not a regular file"));
  }
  TlsFiles missing = files.files;
  missing.private_key = files.folder.path() + "/none";
  CHECK(absl::IsNotFound(LoadTlsMaterial(missing, absl::Now()).status()));
  files.folder.Write("cert.pem", std::string(kTlsFileBytesMax + 1, ' '));
  CHECK(absl::StrContains(files.Error(), "longer than"));
}

TEST_CASE("A key that this user may not read is refused with the system's word", "[router][tls]") {
  const Files files;
  // Everybody may read the rest.
  REQUIRE(chmod(files.folder.path().c_str(), 0755) == 0);
  REQUIRE(chmod(files.files.certificate_chain.c_str(), 0644) == 0);
  REQUIRE(chmod(files.files.private_key.c_str(), 0) == 0);
  // Root reads everything: as somebody else, then.
  const bool is_root = geteuid() == 0;
  if (is_root) REQUIRE(seteuid(12345) == 0);
  const absl::Status status = files.Load().status();
  if (is_root) REQUIRE(seteuid(0) == 0);
  CHECK(absl::IsPermissionDenied(status));
  CHECK(absl::StrContains(status.message(), files.files.private_key));
}

TEST_CASE("Flags that do not fit together are refused by name", "[router][tls]") {
  Files files;
  TlsFiles broken = files.files;
  broken.private_key = "";
  CHECK(absl::StartsWith(LoadTlsMaterial(broken, absl::Now()).status().message(), "--tls-key"));
  broken = files.files;
  broken.certificate_chain = "";
  CHECK(absl::StartsWith(LoadTlsMaterial(broken, absl::Now()).status().message(), "--tls-cert"));
  broken = files.files;
  broken.clients = ClientCertificates::kRequired;
  CHECK(
      absl::StartsWith(LoadTlsMaterial(broken, absl::Now()).status().message(), "--tls-client-ca"));
  broken = files.files;
  broken.client_ca = files.files.certificate_chain;
  CHECK(absl::StartsWith(LoadTlsMaterial(broken, absl::Now()).status().message(),
                         "--tls-client-certs"));
  broken.clients = ClientCertificates::kOptional;
  CHECK(LoadTlsMaterial(broken, absl::Now()).ok());
  broken.client_ca = files.files.private_key;
  CHECK(absl::StrContains(LoadTlsMaterial(broken, absl::Now()).status().message(),
                          "holds no PEM certificate"));
  CHECK(ParseClientCertificates("required").value() == ClientCertificates::kRequired);
  CHECK_FALSE(ParseClientCertificates("yes").ok());
}

TEST_CASE("A certificate that is too weak to serve is refused by name", "[router][tls]") {
  Files files;
  const EvpKeyPtr weak = test::RsaKey(1024);
  files.folder.Write("cert.pem", test::Pem(test::MakeCertificate(weak.get()).get()));
  files.folder.Write("key.pem", test::Pem(weak.get()));
  const auto context = MakeServerContext(*files.Load().value());
  CHECK(absl::StartsWith(context.status().message(), files.files.certificate_chain));
  CHECK(absl::StrContains(context.status().message(), "RSA of 2048 bits"));
}

}  // namespace
}  // namespace weft::router
