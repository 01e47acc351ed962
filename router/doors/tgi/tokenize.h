// TGI's /tokenize and /chat_tokenize. The first path is vLLM's too: its bodies have other fields,
// and go to router/doors/openai/tokenize.h. The handlers run on io_context threads and those of
// text in, and keep no state.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// POST /tokenize, /chat_tokenize. `doors` must outlive the router.
void AddTokenizeRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
