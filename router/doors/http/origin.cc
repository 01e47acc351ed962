#include "router/doors/http/origin.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

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
