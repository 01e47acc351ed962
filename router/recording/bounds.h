// Bounds of recordings (invariant bound.all). Light: the table of flags includes it, and with it
// `weft serve`.

#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::router::recording {

// On disk, all parts together; --record-bytes-max.
inline constexpr uint64_t kRecordBytesDefault = uint64_t{256} << 20;
inline constexpr size_t kPartsMax = 1024;
// Records in memory that wait for the disk.
inline constexpr uint64_t kPendingBytesMax = uint64_t{64} << 20;

}  // namespace weft::router::recording
