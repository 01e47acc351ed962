#include "deploy/launcher/hub/urls.h"

#include <curl/curl.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace weft::hub {
namespace {

struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlPtr = std::unique_ptr<CURLU, UrlFree>;

// Null when it is none, or not of http or https.
UrlPtr ParseUrl(const std::string& text, const std::string& base = "") {
  UrlPtr url(curl_url());
  if (url == nullptr) return nullptr;
  if (!base.empty() && curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK) {
    return nullptr;
  }
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_URLENCODE) != CURLUE_OK) {
    return nullptr;
  }
  return url;
}

// Empty where there is none.
std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string out = text;
  curl_free(text);
  return out;
}

bool IsHttp(CURLU* url) {
  const std::string scheme = Part(url, CURLUPART_SCHEME);
  return scheme == "http" || scheme == "https";
}

// "https://host:443", in lower case.
std::string Origin(CURLU* url) {
  return absl::AsciiStrToLower(absl::StrCat(Part(url, CURLUPART_SCHEME), "://",
                                            Part(url, CURLUPART_HOST), ":",
                                            Part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT)));
}

// Each part of a path as one: what has a meaning in URLs is escaped, but for '/' where `slashes`.
std::string Escaped(absl::string_view text, bool slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~' ||
        (slashes && c == '/')) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace

absl::Status CheckEndpoint(const std::string& endpoint) {
  const UrlPtr url = ParseUrl(endpoint);
  if (url == nullptr || !IsHttp(url.get()) || !Part(url.get(), CURLUPART_USER).empty() ||
      !Part(url.get(), CURLUPART_QUERY).empty() || !Part(url.get(), CURLUPART_FRAGMENT).empty()) {
    return absl::InvalidArgumentError(
        "expected the address of a hub, as in https://huggingface.co, without a user or a query");
  }
  return absl::OkStatus();
}

std::string FileListUrl(const std::string& endpoint, const ModelId& id) {
  return absl::StrCat(endpoint, "/api/models/", id.repository(), "/revision/",
                      Escaped(id.revision, false), "?blobs=true");
}

std::string FileUrl(const std::string& endpoint, const ModelId& id, const std::string& commit,
                    absl::string_view path) {
  return absl::StrCat(endpoint, "/", id.repository(), "/resolve/", Escaped(commit, false), "/",
                      Escaped(path, true));
}

absl::StatusOr<std::string> Redirected(const std::string& url, const std::string& location) {
  const UrlPtr from = ParseUrl(url);
  const UrlPtr to = ParseUrl(location, url);
  if (from == nullptr || to == nullptr || !IsHttp(to.get())) {
    return absl::InvalidArgumentError("the answer leads to what is no address of http or https");
  }
  if (Part(from.get(), CURLUPART_SCHEME) == "https" && Part(to.get(), CURLUPART_SCHEME) == "http") {
    return absl::InvalidArgumentError(
        absl::StrCat("the answer leads from https to http, at ", Part(to.get(), CURLUPART_HOST)));
  }
  return Part(to.get(), CURLUPART_URL);
}

bool IsSameOrigin(const std::string& url, const std::string& other) {
  const UrlPtr a = ParseUrl(url);
  const UrlPtr b = ParseUrl(other);
  return a != nullptr && b != nullptr && Origin(a.get()) == Origin(b.get());
}

std::string HostOf(const std::string& url) {
  const UrlPtr parsed = ParseUrl(url);
  if (parsed == nullptr) return url;
  const std::string port = Part(parsed.get(), CURLUPART_PORT);
  return absl::StrCat(Part(parsed.get(), CURLUPART_HOST), port.empty() ? "" : ":", port);
}

}  // namespace weft::hub
