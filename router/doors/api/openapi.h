// GET /openapi.json: the table of routes and the fields of bodies as an OpenAPI 3.1 document, made
// once at start. Needs no key, and says nothing of how this server was started. Answers on
// io_context threads, from memory.

#pragma once

#include <string>

#include "router/doors/http/router.h"

namespace weft::router {

std::string OpenApiDocument();

void AddOpenApiRoute(HttpRouter* router);

}  // namespace weft::router
