// Requests as bytes: forms that RFC 9112 forbids or leaves to be understood in two ways, and good
// ones that a strict parser must not lose. For tests of the parser and of the server.

#pragma once

#include <string>
#include <vector>

namespace weft::router {

struct HttpForm {
  const char* what;
  std::string bytes;
};

// Each is a 400; a server that lets one pass may be made to see a second request in it.
std::vector<HttpForm> SmugglingForms();
// Each is one whole request.
std::vector<HttpForm> GoodForms();

}  // namespace weft::router
