// Which web pages may call this server, and how browsers are told. A page of any site can make a
// browser post to localhost; it cannot hide its Origin, and it cannot send JSON without asking
// first. So requests with an Origin that is not listed are refused, and so are bodies that are not
// declared as JSON (IsJsonContentType). The page that this server itself shows needs no list
// (OwnOrigin). Immutable; shared by all connections.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/doors/http/message.h"

namespace weft::router {

// An origin as browsers send it (RFC 6454: scheme://host[:port], without the scheme's own port) of
// one that an operator wrote; "*" as it is. INVALID_ARGUMENT in words for anything else: it would
// never be equal to what a browser sends.
absl::StatusOr<std::string> ParseOrigin(absl::string_view text);

// How an Origin stands to the server that the request was sent to, by what the request says of it.
enum class OriginOwner : uint8_t {
  // A page of another site, or of none.
  kOther,
  // A page that this server has shown.
  kOwn,
  // It has this server's name and port, which proves nothing: somebody who owns a name can show a
  // page under it and give the name this server's address afterwards (DNS rebinding). To the
  // browser both are one site then.
  kOwnByNameAlone,
};

// `origin` is not empty; `host` and `port` are those of the request's target or Host, perhaps
// empty. Nobody can make an address or `localhost` his own, and over TLS (`tls`: this connection's)
// the browser has checked that the certificate is for the name: then a page with this server's host
// and port is its own. In clear, the origin may say https: a proxy in front ended TLS.
OriginOwner OwnOrigin(absl::string_view origin, absl::string_view host, absl::string_view port,
                      bool tls);

class OriginPolicy {
 public:
  // Origins as browsers send them, scheme://host[:port]; "*" = every one. Empty = none.
  explicit OriginPolicy(std::vector<std::string> allowed);

  // `origin` is not empty.
  bool Allows(absl::string_view origin) const;
  // Header lines, each with its CRLF, of every answer to an allowed origin; empty for an empty one.
  std::string AnswerLines(absl::string_view origin) const;
  // What a preflight adds to them. `methods` as in Allow; `asked` is what the page wants to send
  // (Access-Control-Request-Headers): beside the headers that are read here, those of OpenAI's
  // client (x-stainless-*) are granted by name, which change nothing.
  static void AddPreflight(absl::string_view methods, absl::string_view asked,
                           HttpHeaders* headers);

 private:
  std::vector<std::string> allowed_;
  bool all_ = false;
};

}  // namespace weft::router
