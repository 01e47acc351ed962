// CPU time and memory of another process of this host, from /proc. Zero for one that is gone.

#pragma once

#include <string>

namespace weft::launcher {

// User and system time so far of all threads, seconds.
double ProcessCpuSeconds(const std::string& pid);

// Proportional set size: shared pages count by their share, MiB.
double ProcessPssMib(const std::string& pid);

}  // namespace weft::launcher
