// Memory read bandwidth, of which decode speed is a share: the machine's own, measured beside every
// benchmark, and an H200's.

#pragma once

#include <cstdint>

namespace weft::launcher {

// What an H200's kernels read at best (docs/PERFORMANCE.md).
inline constexpr double kH200GbytesPerS = 4550;

// Median of `passes` reads of `bytes` (well above the last cache) by `threads` threads, GB/s (1e9).
double MeasureReadBandwidth(int threads, uint64_t bytes, int passes);

}  // namespace weft::launcher
