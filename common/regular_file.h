// Opening a file that is to be read whole: model files, keys, certificates, flag files. What is no
// regular file is refused, and never waited for. Stateless; any thread.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

struct RegularFile {
  // The caller closes it.
  int fd = -1;
  // As of the opening.
  uint64_t bytes = 0;
};

// `path` for reading. NOT_FOUND, PERMISSION_DENIED and so on as open(2) says; INVALID_ARGUMENT for
// a directory, FIFO or device. Messages begin with `path`.
absl::StatusOr<RegularFile> OpenRegularFile(const std::string& path);

}  // namespace weft
