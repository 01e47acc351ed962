// What this process may have of its system: open files, processes and threads, cores, and what a
// clock and an instruction set are good for.

#pragma once

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "deploy/launcher/serve_options.h"

namespace weft::launcher {

// Descriptors for all connections that the flags allow.
void CheckOpenFiles(const Host& host, const ServeOptions& options, Report* report);

// Processes and threads of router and shards, against `ulimit -u` and the group's pids.max. On GPUs
// (`cuda`) a shard computes with one thread.
void CheckProcesses(const Host& host, const ServeOptions& options, bool cuda, Report* report);

// Threads of router and shards against the cores that the group pays for.
void CheckCores(const Host& host, const ServeOptions& options, bool cuda, Report* report);

// Of CPU shards.
void CheckInstructionSet(const Host& host, const ServeOptions& options, Report* report);

// Keys and certificates have dates, and logs of several machines are read side by side.
void CheckClock(const Host& host, Report* report);

}  // namespace weft::launcher
