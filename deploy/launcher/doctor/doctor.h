// All checks of `weft doctor`, in the order in which they are shown.

#pragma once

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "deploy/launcher/serve_options.h"

namespace weft::launcher {

// Whether `weft serve` with these options would start and serve on `host`. Starts and ends a few
// short processes, makes and removes a run directory, opens ports for a moment and GPUs until this
// process ends.
Report Diagnose(const Host& host, const ServeOptions& options);

}  // namespace weft::launcher
