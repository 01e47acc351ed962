// Anthropic's HTTP API: POST /v1/messages, a thin translator between its JSON and GenerateInput,
// and /v1/messages/count_tokens. The handlers run on io_context threads and keep no state.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// `doors` must outlive the router.
void AddAnthropicRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
