// Host and port of a URL or of a Host header (RFC 3986, 3.2), without user information. Pure; any
// thread.

#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

struct HttpAuthority {
  // As it stands there: with a name's escapes, which no name that we compare with has, and an IPv6
  // address in its brackets.
  std::string host;
  // Digits, or nothing.
  std::string port;
};

// Nothing for what is none, or has a port beyond 65535. The host may be empty. A name may begin
// like an IPv4 address (127.0.0.1.nip.io), which Boost's own rule refuses.
std::optional<HttpAuthority> ParseAuthority(absl::string_view text);

}  // namespace weft::router
