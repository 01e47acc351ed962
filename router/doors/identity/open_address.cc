#include "router/doors/identity/open_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft::router {

bool IsLoopback(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  const std::string text(host);
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  in6_addr six{};
  if (inet_pton(AF_INET6, text.c_str(), &six) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

std::string OpenAddressWarning(absl::string_view host, bool has_keys, bool has_tls) {
  if (IsLoopback(host) || (has_keys && has_tls)) return "";
  const std::string open = absl::StrCat("OPEN ADDRESS: ", host.empty() ? "every address" : host,
                                        " is reachable from other machines ");
  if (has_keys) {
    return absl::StrCat(open,
                        "without TLS: keys and prompts can be read on the way; give --tls-cert and "
                        "--tls-key, or listen on 127.0.0.1 behind a proxy that has TLS");
  }
  if (has_tls) {
    return absl::StrCat(open, "without keys: whoever reaches it may use it; give --api-keys");
  }
  return absl::StrCat(open,
                      "with neither keys nor TLS: whoever reaches it may use it, and others can "
                      "read along; give --api-keys, --tls-cert and --tls-key, or listen on "
                      "127.0.0.1");
}

}  // namespace weft::router
