// Whole small files: reading one that somebody else wrote (keys, certificates) without hanging on
// what is no file or filling memory, and writing one so that a reader sees the old bytes or the new
// ones, never a part. Used at start-up, on reload and by commands; both wait for the disk. Never
// follows a path twice: what is checked is what is read.

#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft {

// The bytes of a regular file. NOT_FOUND, PERMISSION_DENIED and so on as open(2) says;
// INVALID_ARGUMENT for a directory, FIFO or device (none is waited for) and for a file of more than
// `bytes_max`. Messages begin with `path` and name the way out.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t bytes_max);

// Replaces `path` (where it is a symbolic link, what it points to) by a file of `bytes`, on the
// disk when this returns. A file that was there keeps its owner, group and mode, as far as this
// process may set them; a new one gets `mode`, or 0600. Messages begin with `path`.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes,
                                 absl::optional<unsigned> mode = absl::nullopt);

}  // namespace weft
