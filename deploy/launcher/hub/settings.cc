#include "deploy/launcher/hub/settings.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/urls.h"

namespace weft::hub {
namespace {

constexpr char kDefaultEndpoint[] = "https://huggingface.co";

// Empty where it is not set.
std::string Value(Environment environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

std::string WithHome(Environment environment, const std::string& path) {
  if (path == "~") return Value(environment, "HOME");
  if (!absl::StartsWith(path, "~/")) return path;
  return absl::StrCat(Value(environment, "HOME"), path.substr(1));
}

std::string Home(Environment environment) {
  const std::string home = Value(environment, "HF_HOME");
  if (!home.empty()) return WithHome(environment, home);
  const std::string cache = Value(environment, "XDG_CACHE_HOME");
  return absl::StrCat(cache.empty() ? WithHome(environment, "~/.cache") : cache, "/huggingface");
}

bool IsTrue(const std::string& value) {
  const std::string text = absl::AsciiStrToLower(value);
  return text == "1" || text == "on" || text == "yes" || text == "true";
}

// It becomes a line of a header.
absl::StatusOr<std::string> CheckToken(absl::string_view text, const std::string& where) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const bool plain = std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!plain || token.size() > kTokenBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " holds no token: expected one word of letters and digits"));
  }
  return std::string(token);
}

absl::StatusOr<std::string> ReadToken(Environment environment) {
  if (IsTrue(Value(environment, "HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return std::string();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    const std::string value = Value(environment, name);
    if (!value.empty()) return CheckToken(value, name);
  }
  const std::string named = Value(environment, "HF_TOKEN_PATH");
  const std::string path =
      named.empty() ? absl::StrCat(Home(environment), "/token") : WithHome(environment, named);
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kTokenBytesMax);
  if (absl::IsNotFound(text.status()) && named.empty()) return std::string();
  if (!text.ok()) return Annotate(text.status(), "the hub's token");
  return CheckToken(*text, path);
}

}  // namespace

std::string CacheDir(Environment environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    const std::string value = Value(environment, name);
    if (!value.empty()) return WithHome(environment, value);
  }
  return absl::StrCat(Home(environment), "/hub");
}

bool IsOffline(Environment environment) {
  const std::string value = Value(environment, "HF_HUB_OFFLINE");
  return IsTrue(value.empty() ? Value(environment, "TRANSFORMERS_OFFLINE") : value);
}

absl::StatusOr<HubSettings> ReadHubSettings(Environment environment) {
  HubSettings settings;
  const std::string endpoint = Value(environment, "HF_ENDPOINT");
  absl::string_view trimmed = endpoint.empty() ? absl::string_view(kDefaultEndpoint) : endpoint;
  while (absl::ConsumeSuffix(&trimmed, "/")) {
  }
  settings.endpoint = std::string(trimmed);
  WEFT_RETURN_IF_ERROR(Annotate(CheckEndpoint(settings.endpoint), "HF_ENDPOINT"));
  WEFT_ASSIGN_OR_RETURN(settings.token, ReadToken(environment));
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    if (settings.ca_file.empty()) settings.ca_file = Value(environment, name);
  }
  return settings;
}

}  // namespace weft::hub
