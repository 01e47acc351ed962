// What weft's processes say by their exit codes to whoever started them.

#pragma once

namespace weft {

// It cannot start as it was told to: another try would end the same way.
inline constexpr int kExitStartup = 1;
// Its device is stuck or lost to this process; a new process may well have it again.
inline constexpr int kExitStuck = 3;

}  // namespace weft
