// What is said of a model's path before anybody opens it, in router, shard and launcher alike.
// Reads names only, and waits for nothing. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace weft {

// OK when `path` may be a model: a regular file, or a directory with a config.json. Else NOT_FOUND
// or INVALID_ARGUMENT that begins with `path` and names the way out, for example the .gguf file in
// a directory that has nothing else.
absl::Status CheckModelPath(const std::string& path);

}  // namespace weft
