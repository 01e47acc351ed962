#include "router/doors/http/request_head.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "boost/asio/buffer.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/url/authority_view.hpp"
#include "boost/url/parse.hpp"
#include "boost/url/url_view.hpp"
#include "router/doors/http/authority.h"

namespace weft::router {
namespace {

namespace http = boost::beast::http;
namespace urls = boost::urls;
using Message = http::request<http::empty_body>;

// Beyond it a length is no length but an attempt to overflow one.
constexpr size_t kLengthDigitsMax = 19;

HttpRefusal Bad(absl::string_view why) { return {400, absl::StrCat("malformed HTTP: ", why)}; }

absl::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

urls::string_view UrlView(absl::string_view text) { return {text.data(), text.size()}; }

HttpMethod MethodOf(absl::string_view method) {
  if (method == "GET") return HttpMethod::kGet;
  if (method == "HEAD") return HttpMethod::kHead;
  if (method == "POST") return HttpMethod::kPost;
  if (method == "OPTIONS") return HttpMethod::kOptions;
  return HttpMethod::kOther;
}

// RFC 3986, 3.2, without user information, which has no place in a Host (RFC 9110, 7.2), and
// without commas: they would be valid in a name, but are what two Host lines look like when joined.
bool IsHost(absl::string_view text) {
  return !absl::StrContains(text, ',') && ParseAuthority(text).has_value();
}

// Of an authority that IsHost takes.
void TakeHost(absl::string_view text, RequestHead* head) {
  HttpAuthority authority = *ParseAuthority(text);
  head->host = std::move(authority.host);
  head->port = std::move(authority.port);
}

// All fields of that name as one list.
std::string Joined(const Message& message, absl::string_view name) {
  std::string joined;
  const auto range = message.equal_range({name.data(), name.size()});
  for (auto field = range.first; field != range.second; ++field) {
    if (!joined.empty()) joined += ", ";
    joined.append(field->value().data(), field->value().size());
  }
  return joined;
}

void TakeTarget(const urls::url_view& url, RequestHead* head) {
  const auto path = url.encoded_path();
  const auto query = url.encoded_query();
  head->path.assign(path.data(), path.size());
  if (path.empty()) head->path.push_back('/');
  head->query = std::string(query.data(), query.size());
}

// RFC 9112, 3.2: origin-form, absolute-form, or the asterisk of OPTIONS.
HttpRefusal ReadTarget(absl::string_view method, absl::string_view target, RequestHead* head) {
  if (method == "CONNECT") return {501, "CONNECT is not served: this is no proxy"};
  if (target == "*" && head->method == HttpMethod::kOptions) {
    head->path.assign(1, '*');
    return {};
  }
  if (absl::StartsWith(target, "/")) {
    const auto url = urls::parse_origin_form(UrlView(target));
    if (!url.has_value()) return Bad("the request target is not a valid path and query");
    TakeTarget(*url, head);
    return {};
  }
  const auto url = urls::parse_absolute_uri(UrlView(target));
  if (!url.has_value()) return Bad("the request target is neither a path nor an absolute URI");
  const bool web =
      url->scheme_id() == urls::scheme::http || url->scheme_id() == urls::scheme::https;
  const auto authority = url->encoded_authority();
  const auto path = url->encoded_path();
  // Boost ends a port at its first other character and takes "http://a:80b/c" for the path "b/c".
  const bool rooted = path.empty() || path.front() == '/';
  if (!web || !rooted || url->encoded_host().empty() ||
      !IsHost(absl::string_view(authority.data(), authority.size()))) {
    return Bad("an absolute request target is http:// or https://, a host and a path");
  }
  TakeTarget(*url, head);
  TakeHost({authority.data(), authority.size()}, head);
  return {};
}

// Exactly: method, a space, target, a space, version. Anything else is told apart here, because
// Beast calls all of it a bad version.
HttpRefusal ReadRequestLine(absl::string_view line, RequestHead* head) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == 0 || first == absl::string_view::npos || first == last) {
    return Bad("a request line is a method, a target and a version, with a space between");
  }
  const absl::string_view version = line.substr(last + 1);
  const auto digit = [&](size_t at) {
    return absl::ascii_isdigit(static_cast<unsigned char>(version[at]));
  };
  if (version.size() != 8 || !absl::StartsWith(version, "HTTP/") || !digit(5) ||
      version[6] != '.' || !digit(7)) {
    return Bad("the request line does not end with a version");
  }
  const absl::string_view method = line.substr(0, first);
  head->method = MethodOf(method);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return {505, "the HTTP version is not 1.0 or 1.1"};
  }
  return ReadTarget(method, line.substr(first + 1, last - first - 1), head);
}

// RFC 9112, 6: one way to frame a body and one value for it, or the request is refused. Stricter
// than the RFC where it allows a choice: equal lengths that repeat, and codings that we would have
// to undo before `chunked`, are errors.
HttpRefusal ReadFraming(const Message& message, RequestHead* head) {
  const size_t lengths = message.count(http::field::content_length);
  const size_t codings = message.count(http::field::transfer_encoding);
  if (codings > 0) {
    if (!head->http_1_1) return Bad("HTTP/1.0 has no Transfer-Encoding");
    if (lengths > 0) return Bad("both Transfer-Encoding and Content-Length");
    if (codings > 1 ||
        !absl::EqualsIgnoreCase(View(message[http::field::transfer_encoding]), "chunked")) {
      return Bad("the only Transfer-Encoding served is `chunked`, once");
    }
    head->chunked = true;
    return {};
  }
  if (lengths == 0) return {};
  if (lengths > 1) return Bad("more than one Content-Length");
  const absl::string_view length = View(message[http::field::content_length]);
  const bool digits = std::all_of(length.begin(), length.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!digits || length.size() > kLengthDigitsMax ||
      !absl::SimpleAtoi(length, &head->content_length)) {
    return Bad("Content-Length is not a number of bytes");
  }
  return {};
}

HttpRefusal ReadHost(const Message& message, RequestHead* head) {
  const size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head->http_1_1)) {
    return {400, "an HTTP/1.1 request has one Host header"};
  }
  if (hosts == 0) return {};
  const absl::string_view host = View(message[http::field::host]);
  if (!IsHost(host)) {
    return {400, "the Host header is not a host name or address, with or without a port"};
  }
  // The target's own goes before it (RFC 9112, 3.2.2).
  if (head->host.empty()) TakeHost(host, head);
  return {};
}

// A field that must not repeat, because recipients would differ in which one counts.
HttpRefusal ReadOnce(const Message& message, const char* name, std::string* value) {
  if (message.count(name) > 1) return Bad(absl::StrCat("more than one ", name));
  *value = std::string(View(message[name]));
  return {};
}

HttpRefusal ReadFields(const Message& message, RequestHead* head) {
  HttpRefusal refusal = ReadFraming(message, head);
  if (!refusal.refused()) refusal = ReadHost(message, head);
  const std::pair<const char*, std::string*> fields[] = {
      {"authorization", &head->authorization},
      {"x-api-key", &head->api_key},
      {"content-type", &head->content_type},
      {"origin", &head->origin},
      {"access-control-request-method", &head->preflight_method},
      {"access-control-request-headers", &head->preflight_headers}};
  for (const auto& [name, value] : fields) {
    if (!refusal.refused()) refusal = ReadOnce(message, name, value);
  }
  if (refusal.refused()) return refusal;
  head->content_encoding = Joined(message, "content-encoding");
  head->if_none_match = Joined(message, "if-none-match");
  // Of these the first one counts: they only name things.
  head->request_id = std::string(View(message["x-request-id"]));
  head->traceparent = std::string(View(message["traceparent"]));
  const absl::string_view expect = View(message[http::field::expect]);
  if (expect.empty() || !head->http_1_1) return {};
  if (message.count(http::field::expect) > 1 || !absl::EqualsIgnoreCase(expect, "100-continue")) {
    return {417, "the only expectation served is 100-continue"};
  }
  head->expect_continue = true;
  return {};
}

}  // namespace

HeadScanner::State HeadScanner::Malformed(absl::string_view problem) {
  problem_ = problem;
  return State::kMalformed;
}

HeadScanner::State HeadScanner::Scan(absl::string_view head) {
  for (; at_ < head.size(); ++at_) {
    const auto c = static_cast<unsigned char>(head[at_]);
    const char before = at_ > 0 ? head[at_ - 1] : '\0';
    if (before == '\r' && c != '\n') return Malformed("a CR without its LF");
    if (c == '\n') {
      if (before != '\r') return Malformed("an LF without its CR");
      if (at_ >= 3 && head[at_ - 2] == '\n') {
        ++at_;
        return State::kComplete;
      }
    } else if (c == ' ' || c == '\t') {
      if (before == '\n') return Malformed("a folded line");
    } else if ((c < 0x20 && c != '\r') || c == 0x7f) {
      return Malformed("a control character");
    }
  }
  return State::kMore;
}

HttpRefusal ReadRequestHead(absl::string_view bytes, RequestHead* head) {
  *head = RequestHead();
  const absl::string_view line = bytes.substr(0, bytes.find("\r\n"));
  HttpRefusal refusal = ReadRequestLine(line, head);
  if (refusal.refused()) return refusal;
  head->http_1_1 = absl::EndsWith(line, "1.1");
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(bytes.size() + 1));
  parser.skip(true);  // the body is ours
  boost::system::error_code error;
  const size_t parsed = parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  if (error) return Bad(error.message());
  if (parsed != bytes.size() || !parser.is_header_done()) return Bad("the head has two ends");
  head->keep_alive = parser.keep_alive();
  return ReadFields(parser.get(), head);
}

bool IsLocalhostOrAddress(absl::string_view host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  const auto authority = urls::parse_authority(UrlView(host));
  // A name may hold an escaped @, which would make what stands behind it the host.
  return authority.has_value() && !authority->has_userinfo() &&
         (authority->host_type() == urls::host_type::ipv4 ||
          authority->host_type() == urls::host_type::ipv6);
}

bool IsJsonContentType(absl::string_view content_type) {
  const absl::string_view type =
      absl::StripAsciiWhitespace(content_type.substr(0, content_type.find(';')));
  return absl::EqualsIgnoreCase(type, "application/json") ||
         (absl::StartsWithIgnoreCase(type, "application/") &&
          absl::EndsWithIgnoreCase(type, "+json"));
}

}  // namespace weft::router
