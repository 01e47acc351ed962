#include "router/doors/http/body_headers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

// As much of a header as a message repeats.
constexpr size_t kShownBytesMax = 256;

// A list of codings (RFC 9110, 8.4) that change nothing. Empty elements of a list count for none.
bool IsIdentity(absl::string_view codings) {
  const std::vector<absl::string_view> list = absl::StrSplit(codings, ',');
  return std::all_of(list.begin(), list.end(), [](absl::string_view coding) {
    coding = absl::StripAsciiWhitespace(coding);
    return coding.empty() || absl::EqualsIgnoreCase(coding, "identity");
  });
}

}  // namespace

std::optional<HttpReply> CheckBodyHeaders(const RequestHead& head) {
  if (!head.has_body()) return std::nullopt;
  // A page's request always names its type: without one it would need no preflight.
  const bool typed = !head.content_type.empty() || !head.origin.empty();
  if (head.method == HttpMethod::kPost && typed && !IsJsonContentType(head.content_type)) {
    return TransportError(
        head.path, 415,
        absl::StrCat("a body is JSON: send the header `content-type: application/json` "
                     "(curl: -H 'content-type: application/json'), not `",
                     head.content_type.substr(0, kShownBytesMax), "`"));
  }
  if (IsIdentity(head.content_encoding)) return std::nullopt;
  HttpReply reply = TransportError(
      head.path, 415,
      absl::StrCat("a body comes as it is: leave the header `content-encoding` out, `",
                   head.content_encoding.substr(0, kShownBytesMax), "` is not undone"));
  // Says what would have been taken (RFC 9110, 15.5.16).
  reply.headers.emplace_back("accept-encoding", "identity");
  return reply;
}

}  // namespace weft::router
