// What a model's path says before anybody opens it, in router, shard and launcher alike: whether it
// may be a model, and what the model is called. Reads names only, and waits for nothing.
// Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// OK when `path` may be a model: a regular file, or a directory with a config.json. Else NOT_FOUND
// or INVALID_ARGUMENT that begins with `path` and names the way out, for example the .gguf file in
// a directory that has nothing else.
absl::Status CheckModelPath(const std::string& path);

// OK when the model at `path` has the file that its tokenizer is in: a directory needs a
// tokenizer.json, a .gguf file holds its own. NOT_FOUND names the file and the way out.
absl::Status CheckTokenizerFile(const std::string& path);

// The names of a model that its path gives: that of the file or directory, of a .gguf file without
// and with the ending, and before them that of a split model without the number of the part. The
// first is what the model is served as unless it is told otherwise; empty
// when the path has no name.
std::vector<std::string> ModelNames(absl::string_view path);

}  // namespace weft
