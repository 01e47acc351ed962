// Whether a request of the admin port asks under a name that only its own clients use. A page can
// give its own host's name this server's address after it was loaded (DNS rebinding), and then
// reads answers as those of its own site. Its requests still carry that name. HTTP/1.0 has none to
// carry, and no browser speaks it. Stateless.

#pragma once

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "router/doors/http/message.h"
#include "router/doors/http/replies.h"
#include "router/doors/http/request_head.h"

namespace weft::router {

inline bool NamesThisHost(const HttpRequest& request) {
  return request.host.empty() || IsLocalhostOrAddress(request.host);
}

// 421. `what` is asked for, as in "the configuration is shown".
inline HttpReply OtherHostReply(const HttpRequest& request, absl::string_view what) {
  return TransportError(
      request.path, 421,
      absl::StrCat(what, " under an IP address or `localhost`, not under the name `",
                   request.host.substr(0, 256), "`, which a web page could have chosen"));
}

}  // namespace weft::router
