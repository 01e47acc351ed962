// What a server reads and writes: the model, keys, certificates, and its run directory.

#pragma once

#include <memory>
#include <string>

#include "deploy/launcher/doctor/host.h"
#include "deploy/launcher/doctor/report.h"
#include "deploy/launcher/serve_options.h"
#include "shard/weights/loader.h"

namespace weft::launcher {

// The model's files with complete headers, cut into as many shards as the flags say. Null when they
// cannot be served. Starts a process where there are GPUs (CheckShardCount).
std::unique_ptr<shard::ModelFiles> CheckModel(const ServeOptions& options, Report* report);

// Makes a run directory in the first of `parents` that serves, and removes it.
void CheckRunDir(const std::vector<std::string>& parents, Report* report);

void CheckKeys(const Host& host, const ServeOptions& options, Report* report);
void CheckTls(const Host& host, const ServeOptions& options, Report* report);
// Who can reach the public ports, with which protection.
void CheckOpenAddress(const ServeOptions& options, Report* report);

}  // namespace weft::launcher
