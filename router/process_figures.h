// What this process holds, read from /proc when asked. Used by the probe; any thread.

#pragma once

#include <cstdint>

namespace weft::router {

// Resident memory; 0 when it cannot be read.
uint64_t ResidentBytes();
// Open file descriptors; 0 when they cannot be read.
int OpenFiles();

}  // namespace weft::router
