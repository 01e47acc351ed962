// GPUs: whether there is one for each shard, what memory they have for the model, who reaches whose
// memory, and which libraries were loaded.

#pragma once

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "deploy/launcher/serve_options.h"

namespace weft::launcher {

// Whether shards will compute on GPUs: as --device says, and with auto where the first GPU serves.
bool TakesGpus(const ServeOptions& options, const shard::GpuSurvey& gpus);

// One GPU for each shard, and the libraries. With --device auto and no GPU that serves, says why
// the CPU computes.
void CheckGpuDevices(const ServeOptions& options, const shard::GpuSurvey& gpus, Report* report);

// How the shards of a group exchange sums: GPUs through each other's memory and NCCL, which needs
// /dev/shm; CPU shards through shared memory that they open by /proc/<pid>/fd.
void CheckExchange(const Host& host, const ServeOptions& options, const shard::GpuSurvey& gpus,
                   Report* report);

}  // namespace weft::launcher
