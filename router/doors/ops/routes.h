// Routes for operators and orchestrators: probes, metrics, version, effective configuration. They
// answer from memory and ask neither queue nor device.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// GET /livez, /readyz, /startupz, /metrics, /version. `doors` must outlive the router.
void AddOpsRoutes(DoorContext* doors, HttpRouter* router);
// GET /config: for the admin port alone, it shows how the server was started. 421 under a host name
// other than localhost.
void AddConfigRoute(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
