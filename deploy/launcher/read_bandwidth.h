// The machine's memory read bandwidth, measured beside every benchmark: decode speed is a share of
// it.

#pragma once

#include <cstdint>

namespace weft::launcher {

// Median of `passes` reads of `bytes` (well above the last cache) by `threads` threads, GB/s (1e9).
double MeasureReadBandwidth(int threads, uint64_t bytes, int passes);

}  // namespace weft::launcher
