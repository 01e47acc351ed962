// The table of HTTP routes: path and method to handler and gate, 404 and 405 otherwise. Filled once
// at start, then only read, by all io_context threads.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/doors/http/message.h"

namespace weft::router {

class HttpRouter {
 public:
  // `path` matches exactly; a "*" in it stands for one character or more, of any kind. The first
  // route that was added and fits counts. A GET route serves HEAD too. `gate` empty: everybody may
  // ask.
  void Add(HttpMethod method, std::string path, HttpHandler handler, HttpGate gate = nullptr);

  struct Match {
    // Null: the path is unknown (`allow` empty) or known with other methods (`allow` names them).
    const HttpHandler* handler = nullptr;
    // Null without a handler.
    const HttpGate* gate = nullptr;
    // Name for the metric: the path as it was added, or "other".
    absl::string_view route = "other";
    std::string allow;
  };
  Match Find(HttpMethod method, absl::string_view path) const;

  // Names for the metric of all routes; one that serves several methods comes as often.
  std::vector<absl::string_view> RouteNames() const;

 private:
  struct Route {
    HttpMethod method;
    std::string path;
    HttpHandler handler;
    HttpGate gate;
  };
  std::vector<Route> routes_;
};

}  // namespace weft::router
