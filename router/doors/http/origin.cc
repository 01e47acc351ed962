#include "router/doors/http/origin.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "router/doors/http/authority.h"
#include "router/doors/http/request_head.h"

namespace weft::router {
namespace {

// OpenAI's client sends about ten.
constexpr size_t kClientHeadersMax = 32;
constexpr size_t kClientHeaderBytesMax = 64;
// Web pages, and those that applications and extensions of browsers show.
constexpr absl::string_view kPageSchemes[] = {
    "http",  "https",         "app",   "capacitor",     "chrome-extension",
    "ionic", "moz-extension", "tauri", "vscode-webview"};

// "x-stainless-" and lower case letters, digits and dashes: what browsers write, and what is safe
// to repeat in a header.
bool IsClientHeader(absl::string_view name) {
  return absl::StartsWith(name, "x-stainless-") && name.size() <= kClientHeaderBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return absl::ascii_islower(byte) || absl::ascii_isdigit(byte) || c == '-';
         });
}

}  // namespace

absl::StatusOr<std::string> ParseOrigin(absl::string_view text) {
  if (text == "*") return std::string(text);
  const auto refused = [text](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", text, "` ", why,
                     "; an origin is scheme://host or scheme://host:port, as "
                     "https://chat.example, or * for all"));
  };
  const size_t scheme_end = text.find("://");
  if (scheme_end == absl::string_view::npos || scheme_end == 0) {
    return refused("has no scheme or no host");
  }
  const std::string scheme = absl::AsciiStrToLower(text.substr(0, scheme_end));
  const absl::string_view rest = text.substr(scheme_end + 3);
  const size_t end = rest.find_first_of("/?#");
  if (end != absl::string_view::npos) {
    return refused(rest[end] == '/' ? "has a path" : "has a query or a fragment");
  }
  if (absl::StrContains(rest, '@')) return refused("names a user");
  if (absl::StrContains(rest, '*')) return refused("has a pattern in its host, which is none");
  if (std::find(std::begin(kPageSchemes), std::end(kPageSchemes), scheme) ==
      std::end(kPageSchemes)) {
    return refused(absl::StrCat("has a scheme that no page has: they have ",
                                absl::StrJoin(kPageSchemes, ", ")));
  }
  const std::optional<HttpAuthority> authority = ParseAuthority(rest);
  if (!authority.has_value() && ParseAuthority(rest.substr(0, rest.rfind(':'))).has_value()) {
    return refused("has a port beyond 1 to 65535");
  }
  if (!authority.has_value() || authority->host.empty()) return refused("has no scheme or no host");
  const absl::string_view host =
      rest.substr(0, rest.size() - (authority->port.empty() ? 0 : authority->port.size() + 1));
  std::string origin =
      absl::StrCat(text.substr(0, scheme_end), "://", absl::StripSuffix(host, ":"));
  uint32_t port = 0;
  if (authority->port.empty()) return origin;
  if (!absl::SimpleAtoi(authority->port, &port) || port == 0) {
    return refused("has a port beyond 1 to 65535");
  }
  if ((scheme == "http" && port == 80) || (scheme == "https" && port == 443)) return origin;
  return absl::StrCat(origin, ":", port);
}

OriginOwner OwnOrigin(absl::string_view origin, absl::string_view host, absl::string_view port,
                      bool tls) {
  const bool https = absl::ConsumePrefix(&origin, "https://");
  if (!https && (tls || !absl::ConsumePrefix(&origin, "http://"))) return OriginOwner::kOther;
  const std::optional<HttpAuthority> page = ParseAuthority(origin);
  if (!page.has_value() || page->host.empty()) return OriginOwner::kOther;
  // Browsers leave a scheme's own port out, in both.
  const absl::string_view usual = https ? "443" : "80";
  const auto port_of = [usual](absl::string_view given) { return given.empty() ? usual : given; };
  if (!absl::EqualsIgnoreCase(page->host, host) || port_of(page->port) != port_of(port)) {
    return OriginOwner::kOther;
  }
  return tls || IsLocalhostOrAddress(host) ? OriginOwner::kOwn : OriginOwner::kOwnByNameAlone;
}

OriginPolicy::OriginPolicy(std::vector<std::string> allowed)
    : allowed_(std::move(allowed)),
      all_(std::find(allowed_.begin(), allowed_.end(), "*") != allowed_.end()) {}

bool OriginPolicy::Allows(absl::string_view origin) const {
  return all_ || std::any_of(allowed_.begin(), allowed_.end(), [&](const std::string& one) {
           return absl::EqualsIgnoreCase(one, origin);
         });
}

std::string OriginPolicy::AnswerLines(absl::string_view origin) const {
  if (origin.empty()) return "";
  // Vary also with "*": the answer to a request without Origin lacks the line.
  return absl::StrCat("access-control-allow-origin: ", all_ ? "*" : origin,
                      "\r\nvary: Origin\r\naccess-control-expose-headers: "
                      "x-request-id, retry-after, x-weft-fingerprint, x-weft-ignored-fields, "
                      "x-weft-resume\r\n");
}

void OriginPolicy::AddPreflight(absl::string_view methods, absl::string_view asked,
                                HttpHeaders* headers) {
  std::string allowed = "authorization, x-api-key, content-type, x-request-id, traceparent";
  size_t granted = 0;
  for (const absl::string_view part : absl::StrSplit(asked, ',')) {
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(part));
    if (!IsClientHeader(name)) continue;
    if (++granted > kClientHeadersMax) break;
    absl::StrAppend(&allowed, ", ", name);
  }
  headers->emplace_back("access-control-allow-methods", std::string(methods));
  headers->emplace_back("access-control-allow-headers", std::move(allowed));
  headers->emplace_back("access-control-max-age", "600");
}

}  // namespace weft::router
