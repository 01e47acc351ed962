// Addresses as URLs and gRPC write them: an IPv6 address stands in brackets. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

// The host without the brackets that somebody may have typed.
inline absl::string_view WithoutBrackets(absl::string_view host) {
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host.remove_prefix(1);
    host.remove_suffix(1);
  }
  return host;
}

// "127.0.0.1:80", "localhost:80", "[::1]:80".
inline std::string HostPort(absl::string_view host, uint32_t port) {
  host = WithoutBrackets(host);
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

}  // namespace weft
