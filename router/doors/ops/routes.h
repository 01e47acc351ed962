// Routes for operators and orchestrators: probes, metrics, version, effective configuration. They
// answer from memory and ask neither queue nor device.

#pragma once

#include <functional>

#include "absl/status/status.h"
#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// GET /livez, /readyz, /startupz, /metrics, /version. `doors` must outlive the router.
void AddOpsRoutes(DoorContext* doors, HttpRouter* router);
// GET /config: for the admin port alone, it shows how the server was started. 421 under a host name
// other than localhost.
void AddConfigRoute(DoorContext* doors, HttpRouter* router);
// POST /flush_cache and /reset_prefix_cache: for the admin port alone, since they take
// what other requests would have found. 421 under a host name other than localhost. `flush` (any
// thread, never blocks) does it or says why not.
void AddFlushRoutes(std::function<absl::Status()> flush, HttpRouter* router);

}  // namespace weft::router
