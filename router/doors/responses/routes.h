// OpenAI's Responses: POST /v1/responses, a thin translator between its JSON and GenerateInput,
// without anything that is kept between requests. The handlers run on io_context threads and keep
// no state.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// `doors` must outlive the router.
void AddResponsesRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
