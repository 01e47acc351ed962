// Freed memory goes back to the system: how the C library's allocator is set up for a server whose
// load comes in floods, and a call that returns what it keeps. Thread-safe.

#pragma once

#include <cstddef>

namespace weft {

// Large blocks are mapped one by one and unmapped when freed, for good: left to itself the
// allocator raises that bound to the largest block ever freed, keeps such blocks in its heaps from
// then on, and a flood's memory with them. Before the first thread.
void LimitFreedMemory();

// Returns freed memory to the system when the allocator keeps more than `kept_bytes_max`; returns
// how much it kept before. Takes milliseconds when there is much to return, microseconds when not:
// call it every few seconds, from a thread that nobody waits for.
size_t ReturnFreedMemory(size_t kept_bytes_max);

}  // namespace weft
