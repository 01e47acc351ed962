#include "router/doors/http/origin.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/url/parse.hpp"
#include "boost/url/scheme.hpp"
#include "boost/url/url_view.hpp"

namespace weft::router {
namespace {

// OpenAI's client sends about ten.
constexpr size_t kClientHeadersMax = 32;
constexpr size_t kClientHeaderBytesMax = 64;

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
  const auto url = boost::urls::parse_uri({text.data(), text.size()});
  if (!url.has_value() || !url->has_authority() || url->host().empty()) {
    return refused("has no scheme or no host");
  }
  if (url->has_userinfo()) return refused("names a user");
  if (!url->encoded_path().empty()) return refused("has a path");
  if (url->has_query() || url->has_fragment()) return refused("has a query or a fragment");
  std::string origin = absl::StrCat(std::string(url->scheme()), "://");
  const auto host = url->encoded_host();
  origin.append(host.data(), host.size());
  if (!url->has_port() || url->port().empty()) return origin;
  const absl::string_view port_text(url->port().data(), url->port().size());
  uint32_t port = 0;
  if (!absl::SimpleAtoi(port_text, &port) || port == 0 || port > 65535) {
    return refused("has a port beyond 1 to 65535");
  }
  if (port == boost::urls::default_port(url->scheme_id())) return origin;
  return absl::StrCat(origin, ":", port);
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
                      "x-request-id, retry-after, x-weft-ignored-fields\r\n");
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
