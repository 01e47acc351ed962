// Freed memory goes back to the system: how the C library's allocator is set up for a server whose
// load comes in floods, and an object that returns what it keeps, owned and called by one thread
// that nobody waits for. It never frees memory that is in use.

#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

// Large blocks are mapped one by one and unmapped when freed, for good: left to itself the
// allocator raises that bound to the largest block ever freed, keeps such blocks in its heaps from
// then on, and a flood's memory with them. Before the first thread.
void LimitFreedMemory();

// The allocator cannot say how much of what it keeps is resident, so the process is looked at as a
// whole.
class FreedMemory {
 public:
  // Growth by less than `growth_bytes_max` is left alone.
  explicit FreedMemory(uint64_t growth_bytes_max);

  // Returns freed memory to the system when the process has grown by that much since it held least,
  // and again and again, more and more seldom, while it holds that much more than it ever did: what
  // was in use the last time may have been freed. True when it did. Takes milliseconds then, which
  // a thread may have to wait for that takes memory, and microseconds when not: call it several
  // times a second.
  bool ReturnIfGrown(int64_t now_us);

 private:
  const uint64_t growth_bytes_max_;
  // What the process held at its least, and at its least since the last return.
  uint64_t floor_bytes_;
  uint64_t least_bytes_;
  // When to return memory although nothing has grown.
  int64_t again_us_ = 0;
  int64_t pause_us_ = 0;
};

}  // namespace weft
