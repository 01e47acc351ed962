// text-generation-inference's HTTP API: a thin translator between its JSON and GenerateInput. The
// handlers run on io_context threads and keep no state.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// GET /, /health, /ping, /info; POST /, /generate, /generate_stream, /invocations, /tokenize,
// /chat_tokenize. `doors` must outlive the router.
void AddTgiRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
