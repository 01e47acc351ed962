// The parts of a GGUF model that was split over several files. Reads names only; thread-safe.
// Names: llama.cpp's gguf-split writes NAME-00001-of-00003.gguf, NAME-00002-of-00003.gguf and so
// on, the metadata in the first.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Parts of one model at most (invariant bound.all).
inline constexpr size_t kGgufPartsMax = 1024;

// What the name of a part says: NAME (a view into the path), the part's number, counted from 1, and
// how many parts there are.
struct GgufPartName {
  absl::string_view stem;
  size_t part = 0;
  size_t count = 0;
};

// Nothing when `path` is not named as a part.
std::optional<GgufPartName> ParseGgufPartName(absl::string_view path);

// The paths of all parts of the model that `path` is a part of, in order, by their names alone;
// only `path` when its name is that of a whole model. INVALID_ARGUMENT for part 0, a part behind
// the last one or too many of them.
absl::StatusOr<std::vector<std::string>> GgufPartPaths(const std::string& path);

}  // namespace weft
