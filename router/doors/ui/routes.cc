#include "router/doors/ui/routes.h"

#include <openssl/sha.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "router/doors/http/replies.h"
#include "router/doors/ui/page_files.h"

namespace weft::router {
namespace {

constexpr absl::string_view kFolder = "/ui/";
constexpr absl::string_view kIndex = "index.html";

// Bytes of a digest that tell two versions of a file apart.
constexpr size_t kTagBytes = 16;

// Scripts, styles and calls are the page's own alone, nothing is put together from text
// (require-trusted-types-for: a browser that knows it refuses innerHTML and the like), and no other
// page may frame it.
constexpr absl::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

// By the end of a file's name; a file of another kind is not there.
constexpr std::pair<absl::string_view, absl::string_view> kTypes[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".mjs", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"}};

struct Served {
  const PageFile* file;
  absl::string_view content_type;
  std::string tag;
};

std::string TagOf(absl::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::StrCat(
      "\"",
      absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), kTagBytes)),
      "\"");
}

std::vector<Served> ServedFiles() {
  std::vector<Served> served;
  for (const PageFile& file : PageFiles()) {
    const auto* const type =
        std::find_if(std::begin(kTypes), std::end(kTypes),
                     [&file](const auto& one) { return absl::EndsWith(file.name, one.first); });
    if (type != std::end(kTypes)) served.push_back({&file, type->second, TagOf(file.bytes)});
  }
  return served;
}

// RFC 9110, 13.1.2: a list of tags, which are compared without regard to W/, or *.
bool Matches(absl::string_view if_none_match, absl::string_view tag) {
  for (absl::string_view one : absl::StrSplit(if_none_match, ',')) {
    one = absl::StripAsciiWhitespace(one);
    if (one == "*" || absl::StripPrefix(one, "W/") == tag) return true;
  }
  return false;
}

// `path` begins with kFolder.
HttpReply FileReply(const std::vector<Served>& files, const HttpRequest& request) {
  const absl::string_view name = absl::StripPrefix(request.path, kFolder);
  const auto found = std::find_if(files.begin(), files.end(), [name](const Served& one) {
    return one.file->name == (name.empty() ? kIndex : name);
  });
  if (found == files.end()) return TransportError(request.path, 404, "no such path");
  HttpReply reply;
  reply.headers = {{"etag", found->tag},
                   // A browser asks each time whether its copy is still good: the files of one
                   // version of this program belong together.
                   {"cache-control", "no-cache"},
                   {"content-security-policy", std::string(kContentSecurityPolicy)},
                   {"x-content-type-options", "nosniff"},
                   {"referrer-policy", "no-referrer"},
                   {"cross-origin-resource-policy", "same-origin"}};
  if (Matches(request.if_none_match, found->tag)) {
    reply.status = 304;
    reply.content_type = "";
  } else {
    reply.content_type = found->content_type;
    reply.body = std::string(found->file->bytes);
  }
  return reply;
}

// To the folder, relative to where the browser is: a proxy may show this server below a path.
HttpReply ToFolder() {
  HttpReply reply;
  reply.status = 307;
  reply.content_type = "";
  reply.headers.emplace_back("location", "ui/");
  return reply;
}

}  // namespace

void AddUiRoutes(HttpRouter* router) {
  router->Add(HttpMethod::kGet, "/ui", [](HttpRequest, HttpResponder& responder, IoWaker&) {
    responder.Reply(ToFolder());
    return std::shared_ptr<HttpExchange>();
  });
  const HttpHandler serve = [files = std::make_shared<const std::vector<Served>>(ServedFiles())](
                                HttpRequest request, HttpResponder& responder, IoWaker&) {
    responder.Reply(FileReply(*files, request));
    return std::shared_ptr<HttpExchange>();
  };
  router->Add(HttpMethod::kGet, "/ui/", serve);
  router->Add(HttpMethod::kGet, "/ui/*", serve);
}

}  // namespace weft::router
