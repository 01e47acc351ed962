// The threads of one load: each takes the next parameter until none is left, one fails or the load
// is cancelled. Called by the loader thread, which works along and returns when all have ended.

#pragma once

#include <atomic>
#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace weft::shard {

// Threads that ForEachParam starts at most, the caller included.
inline constexpr int kLoaderThreadsMax = 64;

// Calls load(index) once for each index in [0, count), by `threads` threads (cut to 1 ..
// kLoaderThreadsMax) at once, in ascending order of their beginnings. The first error, after which
// nothing more begins; CANCELLED when *cancel was set.
absl::Status ForEachParam(size_t count, int threads, const std::atomic<bool>& cancel,
                          absl::FunctionRef<absl::Status(size_t index)> load);

}  // namespace weft::shard
