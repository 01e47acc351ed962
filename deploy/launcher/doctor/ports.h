// Whether the ports that the flags name can be listened on.

#pragma once

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "deploy/launcher/serve_options.h"

namespace weft::launcher {

void CheckPorts(const Host& host, const ServeOptions& options, Report* report);

}  // namespace weft::launcher
