// What a gRPC call says of who sent it: connection, address and metadata. Pure; any thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "common/limits.h"
#include "grpc/grpc_security.h"
#include "grpcpp/server_context.h"
#include "router/doors/access_log.h"
#include "router/doors/door_context.h"

namespace weft::router {

// One value of the call's metadata; empty where there is none.
inline std::string MetadataOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto it = context.client_metadata().find(name);
  if (it == context.client_metadata().end()) return "";
  return std::string(it->second.data(), it->second.size());
}

// `authorization` and `x-api-key` of the call's metadata. INVALID_ARGUMENT when one of them comes
// twice: who stands between may have read the other.
inline absl::StatusOr<Credentials> CredentialsOf(const grpc::CallbackServerContext& context) {
  for (const char* name : {"authorization", "x-api-key"}) {
    if (context.client_metadata().count(name) > 1) {
      return absl::InvalidArgumentError(absl::StrCat("more than one `", name, "` in the metadata"));
    }
  }
  return Credentials{MetadataOf(context, "authorization"), MetadataOf(context, "x-api-key")};
}

// The call's deadline on the monotonic clock; the largest number when it has none.
inline int64_t DeadlineUsOf(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // No deadline is the largest time there is; a year from now is as good.
  if (left > std::chrono::hours(24 * 365)) return std::numeric_limits<int64_t>::max();
  return MonotonicClock().NowUs() +
         std::chrono::duration_cast<std::chrono::microseconds>(left).count();
}

// What the call's headers are about as literals: path, authority and what else each call has are
// short.
inline uint64_t HeaderBytesOf(const grpc::CallbackServerContext& context) {
  constexpr uint64_t kCommonBytes = 256;
  constexpr uint64_t kFieldBytes = 5;  // HPACK's lengths
  uint64_t bytes = kCommonBytes;
  for (const auto& [name, value] : context.client_metadata()) {
    bytes += name.size() + value.size() + kFieldBytes;
  }
  return bytes;
}

// The client's trace context; empty where there is none or it is malformed.
inline std::string TraceparentOf(const grpc::CallbackServerContext& context) {
  std::string text = MetadataOf(context, "traceparent");
  return IsTraceparent(text) ? text : "";
}

// The same for all calls of a connection. Another connection may have it after this one's end.
inline const void* ConnectionKeyOf(const grpc::CallbackServerContext& context) {
  grpc_call* call = const_cast<grpc::CallbackServerContext&>(context).c_call();
  grpc_auth_context* key = grpc_call_auth_context(call);
  grpc_auth_context_release(key);  // the call holds it
  return key;
}

// "ip:port" of the other end, or what gRPC calls it.
inline std::string PeerOf(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  absl::string_view text = peer;
  if (!absl::ConsumePrefix(&text, "ipv4:")) absl::ConsumePrefix(&text, "ipv6:");
  return std::string(text);
}

}  // namespace weft::router
