// OpenAI's HTTP API: a thin translator between its JSON and GenerateInput. The handlers run on
// io_context threads and keep no state.

#pragma once

#include "router/doors/front.h"
#include "router/doors/http/router.h"

namespace weft::router {

// POST /v1/chat/completions, /v1/completions; GET /v1/models, /v1/models/{id}. `front` must outlive
// the router.
void AddOpenAiRoutes(Front* front, HttpRouter* router);

}  // namespace weft::router
