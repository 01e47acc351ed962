#include "router/doors/http/router.h"

#include <utility>

#include "absl/strings/match.h"

namespace weft::router {
namespace {

bool Matches(absl::string_view pattern, absl::string_view path) {
  const size_t star = pattern.find('*');
  if (star == absl::string_view::npos) return pattern == path;
  const absl::string_view head = pattern.substr(0, star);
  const absl::string_view tail = pattern.substr(star + 1);
  return path.size() > head.size() + tail.size() && absl::StartsWith(path, head) &&
         absl::EndsWith(path, tail);
}

}  // namespace

void HttpRouter::Add(HttpMethod method, std::string path, HttpHandler handler, HttpGate gate) {
  routes_.push_back({method, std::move(path), std::move(handler), std::move(gate)});
}

HttpRouter::Match HttpRouter::Find(HttpMethod method, absl::string_view path) const {
  if (method == HttpMethod::kHead) method = HttpMethod::kGet;
  Match match;
  for (const Route& route : routes_) {
    if (!Matches(route.path, path)) continue;
    match.route = route.path;
    if (route.method == method) {
      match.handler = &route.handler;
      match.gate = &route.gate;
      match.allow.clear();
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method == HttpMethod::kGet ? "GET, HEAD" : "POST";
  }
  return match;
}

std::vector<absl::string_view> HttpRouter::RouteNames() const {
  std::vector<absl::string_view> names;
  names.reserve(routes_.size());
  for (const Route& route : routes_) names.emplace_back(route.path);
  return names;
}

}  // namespace weft::router
