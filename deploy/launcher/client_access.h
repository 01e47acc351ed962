// How the client commands reach a server: its address, TLS and a key. The same flags for each of
// them: --connect takes host:port or a URL of http:// or https://, --tls and --ca go with TLS, and
// the key comes from a file or the environment, never from the command line, which others can read.
// Main thread.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flags.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/channel_arguments.h"

namespace weft::launcher {

// Holds the key where --api-key-file names no file.
inline constexpr char kApiKeyVariable[] = "WEFT_API_KEY";

// As they are typed.
struct AccessFlags {
  std::string connect;
  bool tls = false;
  std::string ca;
  std::string api_key_file;
};

// Declares --connect (with `what` it is), --tls, --ca and --api-key-file on `flags`, filled into
// *values (which must outlive the parse).
void DeclareAccessFlags(Flags& flags, const char* what, AccessFlags* values);

// What they come to.
struct ServerAccess {
  // host:port, an IPv6 address in brackets.
  std::string address;
  bool tls = false;
  // PEM of the authorities that are trusted; empty without TLS.
  std::string authorities;
  // Empty = none.
  std::string api_key;
};

// INVALID_ARGUMENT or NOT_FOUND names the flag or the variable and what was expected.
absl::StatusOr<ServerAccess> ResolveAccess(const AccessFlags& values);

// A channel to `access`, clear or encrypted. What the library would write to stderr of its tries is
// silenced for the whole process: its user hears of them by a Status.
std::shared_ptr<grpc::Channel> ConnectGrpc(const ServerAccess& access,
                                           const grpc::ChannelArguments& arguments = {});
// That no connection came about, with what may be the cause.
absl::Status NoGrpcServer(const ServerAccess& access);
// Adds the key, if there is one.
void AddApiKey(const ServerAccess& access, grpc::ClientContext* context);

}  // namespace weft::launcher
