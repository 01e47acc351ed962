#include "router/observe/otlp_options.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "common/version.h"

namespace weft::router {
namespace {

constexpr char kPath[] = "/v1/traces";
constexpr char kDefaultPort[] = "80";

// What is in braces in the variables' values: percent-encoding.
std::string Decoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]));
    if (!escape) {
      out.push_back(text[i]);
      continue;
    }
    out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)));
    i += 2;
  }
  return out;
}

// "name=value,name=value".
absl::StatusOr<TraceAttributes> Pairs(const char* name, absl::string_view text) {
  TraceAttributes pairs;
  for (const absl::string_view item : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(pair.first);
    if (key.empty() || !absl::StrContains(item, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected name=value with commas between them"));
    }
    pairs.emplace_back(Decoded(key), Decoded(absl::StripAsciiWhitespace(pair.second)));
  }
  return pairs;
}

// Splits "http://host:port/path".
absl::Status ReadUrl(const std::string& name, absl::string_view url, bool whole_path,
                     OtlpOptions* out) {
  const auto refuse = [&name](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", why, "; expected a collector as in http://127.0.0.1:4318"));
  };
  if (absl::StartsWith(url, "https://")) {
    return refuse(
        "https is not spoken here: send to a collector on this host or in this pod, "
        "which speaks it to others");
  }
  if (!absl::ConsumePrefix(&url, "http://")) return refuse("does not begin with http://");
  const size_t slash = std::min(url.find('/'), url.size());
  absl::string_view authority = url.substr(0, slash);
  absl::string_view path = absl::StripSuffix(url.substr(slash), "/");
  if (absl::StrContains(authority, '@')) {
    return refuse(
        "has a user's name, and addresses are shown in logs; keys go into "
        "OTEL_EXPORTER_OTLP_HEADERS");
  }
  const size_t colon = authority.rfind(':');
  const bool has_port =
      colon != absl::string_view::npos && !absl::StrContains(authority.substr(colon), ']');
  out->port = std::string(has_port ? authority.substr(colon + 1) : kDefaultPort);
  if (has_port) authority = authority.substr(0, colon);
  if (absl::ConsumePrefix(&authority, "[")) absl::ConsumeSuffix(&authority, "]");
  uint32_t port = 0;
  if (authority.empty()) return refuse("names no host");
  if (!absl::SimpleAtoi(out->port, &port) || port == 0 || port > 65535) {
    return refuse("has a port that is not in 1 .. 65535");
  }
  out->host = std::string(authority);
  out->path = whole_path ? absl::StrCat(path.empty() ? "/" : path) : absl::StrCat(path, kPath);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<OtlpOptions>> ReadOtlpOptions(
    const std::string& endpoint, double sample,
    const std::function<const char*(const char* name)>& variable) {
  const auto text = [&variable](const char* name) {
    const char* const value = variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  OtlpOptions options;
  options.sample = sample;
  if (!endpoint.empty()) {
    WEFT_RETURN_IF_ERROR(ReadUrl("--otlp-endpoint", endpoint, /*whole_path=*/false, &options));
  } else {
    if (absl::EqualsIgnoreCase(text("OTEL_SDK_DISABLED"), "true") ||
        text("OTEL_TRACES_EXPORTER") == "none") {
      return std::nullopt;
    }
    constexpr char kOfTraces[] = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    constexpr char kOfAll[] = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const bool of_traces = !text(kOfTraces).empty();
    const char* const name = of_traces ? kOfTraces : kOfAll;
    if (text(name).empty()) return std::nullopt;
    WEFT_RETURN_IF_ERROR(ReadUrl(name, text(name), of_traces, &options));
  }
  constexpr char kHeaders[] = "OTEL_EXPORTER_OTLP_HEADERS";
  WEFT_ASSIGN_OR_RETURN(options.headers, Pairs(kHeaders, text(kHeaders)));
  for (const auto& [key, value] : options.headers) {
    // A line's end would begin another header.
    for (const char c : absl::StrCat(key, value)) {
      if (c < ' ')
        return absl::InvalidArgumentError(absl::StrCat(kHeaders, ": a control character"));
    }
  }
  constexpr char kResource[] = "OTEL_RESOURCE_ATTRIBUTES";
  WEFT_ASSIGN_OR_RETURN(options.resource, Pairs(kResource, text(kResource)));
  // Its own variable comes before the list's.
  std::string service = text("OTEL_SERVICE_NAME");
  bool named = false;
  for (auto& [key, value] : options.resource) {
    if (key != "service.name") continue;
    named = true;
    if (!service.empty()) value = service;
  }
  if (!named) options.resource.emplace_back("service.name", service.empty() ? "weft" : service);
  options.resource.emplace_back("service.version", Version());
  return options;
}

}  // namespace weft::router
