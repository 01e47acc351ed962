// The HTTP side of the Open Inference Protocol v2 (KServe, Triton): health and metadata under /v2.
// Health needs no key; the model's metadata does, as /v1/models. Errors are the protocol's,
// {"error": text}.

#pragma once

#include "router/doors/door_context.h"
#include "router/doors/http/router.h"

namespace weft::router {

// GET /v2, /v2/health/live, /v2/health/ready, /v2/models/NAME[/versions/VERSION][/ready]; POST
// /v2/models/NAME[/versions/VERSION]/infer says what to use in its place. `doors` must outlive the
// router.
void AddOpenInferenceRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
