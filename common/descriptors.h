// The process's limit of open files. Called by main before anything is opened.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace weft {

// Raises the soft limit to the hard one, which needs no privilege, and returns what holds then.
// Shells and service managers start programs with 1,024, which is far below what a server with
// thousands of connections needs.
absl::StatusOr<uint64_t> RaiseDescriptorLimit();

}  // namespace weft
