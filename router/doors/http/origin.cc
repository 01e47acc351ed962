#include "router/doors/http/origin.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::router {

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

void OriginPolicy::AddPreflight(absl::string_view methods, HttpHeaders* headers) {
  headers->emplace_back("access-control-allow-methods", std::string(methods));
  headers->emplace_back("access-control-allow-headers",
                        "authorization, content-type, x-request-id, traceparent");
  headers->emplace_back("access-control-max-age", "600");
}

}  // namespace weft::router
