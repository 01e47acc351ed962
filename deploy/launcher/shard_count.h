// Whether so many shards can serve a model on this host: said once, before any of them is started.
// Reads the headers of the model's files and asks how many GPUs there are, in a process of its own.
// Main thread, before there are others.

#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "deploy/launcher/serve_options.h"

namespace weft::launcher {

// OK when each of `shards` ranks has a GPU, or none will use one. `find` says whether the GPU of an
// index can be used; NOT_FOUND = there is none. Named with the way out otherwise.
absl::Status CheckGpus(const std::string& device, uint32_t shards,
                       absl::FunctionRef<absl::Status(uint32_t index)> find);

// What `model` is cut into, and the GPUs of this host. INVALID_ARGUMENT names --shards and how many
// would work; an error of the model's files is theirs.
absl::Status CheckShardCount(const std::string& model, const ServeOptions& options);

}  // namespace weft::launcher
