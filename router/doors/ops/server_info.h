// SGLang's description of a server, which its benchmark, routers and gateways read: what /info says
// under SGLang's names, limits and versions. It needs no key, so that it holds no flag's value that
// /info does not show; /config has those. Answers from memory, on io_context threads.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// GET /server_info and /get_server_info. `doors` must outlive the router.
void AddServerInfoRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
