// Whether a model can be served by so many shards on this host: said once, in the same words and
// order by `weft serve` and `weft inspect`, before any process is started. Reads the limit of
// memory and the headers of the model's files, and asks how many GPUs there are, in a process of
// its own. Main thread, before there are others.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cgroup.h"
#include "deploy/launcher/serve_options.h"
#include "shard/weights/loader.h"

namespace weft::launcher {

// OK when each of `shards` ranks of each replica has a GPU, or none will use one. `find` says
// whether the GPU of an index can be used; NOT_FOUND = there is none. Named with the way out
// otherwise.
absl::Status CheckGpus(const std::string& device, uint32_t shards,
                       absl::FunctionRef<absl::Status(uint32_t index)> find, uint32_t replicas = 1);

// OK when the processes of `options` may be there at all within `host`, with nothing loaded.
// FAILED_PRECONDITION names what they take and the limit: in less the kernel ends one of them
// without a word.
absl::Status CheckProcessMemory(const MemoryLimit& host, const ServeOptions& options);

// The headers of the model at `path`, with the values of --weights. The first thing that is missing
// or wrong is named: the configuration, then tensors, then the tokenizer, which only `serves` needs
// where weights are random.
absl::StatusOr<std::unique_ptr<shard::ModelFiles>> OpenModel(const std::string& path,
                                                             const std::string& weights,
                                                             bool serves);

// That `model` can be opened and served, what it is cut into, and the GPUs of this host.
// INVALID_ARGUMENT names --shards and how many would work; an error of the model's files is theirs.
absl::Status CheckShardCount(const std::string& model, const ServeOptions& options);

}  // namespace weft::launcher
