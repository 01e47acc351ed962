// From flags to a loaded model: opens the files, slices, loads, and states the facts that Info
// gives. Called by main's loader thread, once; may take long, ends early on *cancel.

#pragma once

#include <atomic>

#include "absl/status/statusor.h"
#include "shard/control/executor.h"
#include "shard/flags.h"
#include "shard/weights/loader.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// What Info says before anything is loaded: version, rank, limits, instruction sets.
v1::InfoResponse EarlyFacts(const ShardFlags& flags);

// Errors name file, tensor, expected and found.
absl::StatusOr<LoadedModel> LoadModel(const ShardFlags& flags, LoadProgress& progress,
                                      const std::atomic<bool>& cancel);

}  // namespace weft::shard
