// Whether the model fits: what each shard will hold, by the plan that it makes itself before it
// takes anything, against the memory of its GPU or of this host and its control group.

#pragma once

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "deploy/launcher/serve_options.h"
#include "shard/weights/loader.h"

namespace weft::launcher {

void CheckMemory(const Host& host, const ServeOptions& options, const shard::ModelFiles& files,
                 const shard::GpuSurvey& gpus, Report* report);

}  // namespace weft::launcher
