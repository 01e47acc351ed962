// Ollama's HTTP API, as far as it asks for text: POST /api/chat and /api/generate, GET /api/tags
// and /api/version, thin translators between its JSON and GenerateInput. The handlers run on
// io_context threads and keep no state.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// `doors` must outlive the router.
void AddOllamaRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
