#include "deploy/launcher/client_access.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/library_log.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/run_command.h"
#include "grpc/support/log.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace weft::launcher {
namespace {

constexpr size_t kKeyFileBytesMax = 4096;
constexpr size_t kAuthoritiesBytesMax = 8u << 20;
// Where distributions keep what they trust: Debian and Ubuntu, Fedora and its kin, Alpine.
constexpr const char* kSystemAuthorities[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};

// "https://host:port/" to "host:port"; the port of the scheme where none is named.
absl::StatusOr<std::string> AddressOf(const AccessFlags& values, bool* tls) {
  absl::string_view rest = values.connect;
  *tls = values.tls;
  const char* port = nullptr;
  if (absl::ConsumePrefix(&rest, "https://")) {
    *tls = true;
    port = "443";
  } else if (absl::ConsumePrefix(&rest, "http://")) {
    if (values.tls) {
      return absl::InvalidArgumentError("--tls: the address of --connect begins with http://");
    }
    port = "80";
  }
  std::string address(absl::StripSuffix(rest, "/"));
  if (absl::StrContains(address, '/')) {
    return absl::InvalidArgumentError(absl::StrCat("--connect: ", values.connect,
                                                   " has a path; expected host:port, or "
                                                   "https://host:port"));
  }
  const size_t colon = address.rfind(':');
  const bool named = colon != std::string::npos && address.find(']', colon) == std::string::npos;
  if (port != nullptr && !named) absl::StrAppend(&address, ":", port);
  WEFT_RETURN_IF_ERROR(CheckConnect(address));
  return address;
}

absl::StatusOr<std::string> Authorities(const std::string& file) {
  if (!file.empty()) {
    absl::StatusOr<std::string> pem = ReadSmallFile(file, kAuthoritiesBytesMax);
    if (!pem.ok()) return Annotate(pem.status(), "--ca");
    if (!absl::StrContains(*pem, "-----BEGIN CERTIFICATE-----")) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ca: ", file, " holds no certificate in PEM"));
    }
    return pem;
  }
  for (const char* system : kSystemAuthorities) {
    absl::StatusOr<std::string> pem = ReadSmallFile(system, kAuthoritiesBytesMax);
    if (pem.ok()) return pem;
  }
  return absl::NotFoundError(
      "--ca: name the authority of the server's certificate: this host has no list of its own");
}

absl::StatusOr<std::string> ApiKey(const std::string& file) {
  std::string key;
  std::string where = kApiKeyVariable;
  if (!file.empty()) {
    where = absl::StrCat("--api-key-file: ", file);
    absl::StatusOr<std::string> text = ReadSmallFile(file, kKeyFileBytesMax);
    if (!text.ok()) return Annotate(text.status(), "--api-key-file");
    key = *std::move(text);
  } else if (const char* const variable = std::getenv(kApiKeyVariable)) {
    key = variable;
    if (key.empty()) return key;
  } else {
    return key;
  }
  absl::StripAsciiWhitespace(&key);
  const bool graphic = std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (key.empty() || !graphic) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expected one key, as weft key new prints it"));
  }
  return key;
}

}  // namespace

void DeclareAccessFlags(Flags& flags, const char* what, AccessFlags* values) {
  flags.Add("connect", &values->connect, what);
  flags.AddSwitch("tls", &values->tls, "Speak TLS, as an address of https:// says too");
  flags.Add("ca", &values->ca,
            "PEM file: the authority of the server's certificate; empty = those of this host");
  flags.Add("api-key-file", &values->api_key_file,
            "File with the key to send; empty = that of WEFT_API_KEY, if set");
}

absl::StatusOr<ServerAccess> ResolveAccess(const AccessFlags& values) {
  ServerAccess access;
  WEFT_ASSIGN_OR_RETURN(access.address, AddressOf(values, &access.tls));
  if (access.tls) {
    WEFT_ASSIGN_OR_RETURN(access.authorities, Authorities(values.ca));
  } else if (!values.ca.empty()) {
    return absl::InvalidArgumentError("--ca: goes with --tls or an address of https://");
  }
  WEFT_ASSIGN_OR_RETURN(access.api_key, ApiKey(values.api_key_file));
  return access;
}

std::shared_ptr<grpc::Channel> ConnectGrpc(const ServerAccess& access,
                                           const grpc::ChannelArguments& arguments) {
  // What the library says of each try comes as a Status too: there it is said once, in our words.
  gpr_set_log_function([](gpr_log_func_args* args) { LogLibraryLine("grpc", args->message); });
  if (!access.tls) {
    return grpc::CreateCustomChannel(access.address, grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = access.authorities;
  return grpc::CreateCustomChannel(access.address, grpc::SslCredentials(options), arguments);
}

absl::Status NoGrpcServer(const ServerAccess& access) {
  return absl::UnavailableError(absl::StrCat(
      "no gRPC server answers at ", access.address, access.tls ? " with" : " without",
      " TLS; start one with: weft serve (is --connect its gRPC address, not the HTTP one? ",
      access.tls ? "Is its certificate for this name, and signed by --ca?)"
                 : "One with --tls-cert wants --tls or https://)"));
}

void AddApiKey(const ServerAccess& access, grpc::ClientContext* context) {
  if (access.api_key.empty()) return;
  context->AddMetadata("authorization", absl::StrCat("Bearer ", access.api_key));
}

}  // namespace weft::launcher
