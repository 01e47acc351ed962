// text-generation-inference's HTTP API: a thin translator between its JSON and GenerateInput. The
// handlers run on io_context threads and keep no state.

#pragma once

#include "router/doors/front.h"
#include "router/doors/http/router.h"

namespace weft::router {

// GET /, /health, /ping, /info; POST /, /generate, /generate_stream, /invocations, /tokenize,
// /chat_tokenize. `front` must outlive the router.
void AddTgiRoutes(Front* front, HttpRouter* router);

}  // namespace weft::router
