// The head of an HTTP/1.x request: finds its end in bytes that arrive in pieces, and reads it to
// the letter of RFC 9112. Whatever two parsers could understand differently (how long the body is,
// where the head ends, which host is meant) is refused here, so that no proxy in front can be made
// to see other requests than this server. Beast reads methods, fields and tokens; the rules that it
// leaves out stand here. Pure: no socket, no clock. Owned by a RequestReader.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "router/doors/http/message.h"

namespace weft::router {

// Why a request is refused before it reaches a handler. Status 0: it is not.
struct HttpRefusal {
  int status = 0;
  std::string message;
  // Seconds for Retry-After; 0 = none.
  int retry_after_s = 0;

  bool refused() const { return status != 0; }
};

// What a head says. Strings are empty where the field is absent.
struct RequestHead {
  HttpMethod method = HttpMethod::kGet;
  bool http_1_1 = true;
  bool keep_alive = true;
  bool expect_continue = false;
  // How the body is framed: chunked, or `content_length` bytes.
  bool chunked = false;
  uint64_t content_length = 0;
  // Percent-encoding as it came; "*" for OPTIONS of the whole server.
  std::string path;
  std::string query;
  std::string request_id;
  std::string authorization;
  std::string api_key;
  std::string content_type;
  // All fields of that name, joined by commas.
  std::string content_encoding;
  // Host name or address, without the port: that of the target where it has one, else of Host.
  std::string host;
  // The port beside it, digits or nothing.
  std::string port;
  std::string if_none_match;  // all fields of that name, joined by commas
  std::string origin;
  std::string traceparent;
  std::string preflight_method;   // Access-Control-Request-Method
  std::string preflight_headers;  // Access-Control-Request-Headers

  bool has_body() const { return chunked || content_length > 0; }
};

// Looks for the empty line that ends a head and refuses, as soon as they arrive, bytes that no head
// holds: controls, a CR or LF alone, folded lines.
class HeadScanner {
 public:
  enum class State { kMore, kComplete, kMalformed };

  // `head` is everything since the request's first byte; what earlier calls saw is not looked at
  // again.
  State Scan(absl::string_view head);
  // Bytes of the head with its empty line, once complete.
  size_t size() const { return at_; }
  // After kMalformed.
  absl::string_view problem() const { return problem_; }

 private:
  State Malformed(absl::string_view problem);

  size_t at_ = 0;
  absl::string_view problem_;
};

// Reads a complete head, as HeadScanner delimits it. Fills `head` as far as it got; a refusal is a
// 400, 417, 501 or 505.
HttpRefusal ReadRequestHead(absl::string_view bytes, RequestHead* head);

// True for "localhost", an IPv4 address and an IPv6 address in brackets: names that no page of
// another site can have made its own.
bool IsLocalhostOrAddress(absl::string_view host);

// True for "application/json" and "application/<something>+json", with or without parameters.
bool IsJsonContentType(absl::string_view content_type);

}  // namespace weft::router
