// Deals out one piece of memory in aligned parts, one after the other. Over no memory it only
// counts, so that a plan can state the size of what is laid out by the same code. Never frees and
// knows no end: whoever deals out compares used() with what there is. One thread.

#pragma once

#include <cstdint>

namespace weft {

class MemoryParts {
 public:
  // `alignment` of every part, a power of two; `base` has it, or is null.
  MemoryParts(uint8_t* base, uint64_t alignment) : base_(base), alignment_(alignment) {}

  // Memory for `count` values; null over no memory.
  template <typename T = uint8_t>
  T* Take(uint64_t count) {
    uint8_t* const part = base_ == nullptr ? nullptr : base_ + used_;
    used_ += Rounded(count * sizeof(T));
    return reinterpret_cast<T*>(part);
  }
  // Of one part.
  uint64_t Rounded(uint64_t bytes) const { return (bytes + alignment_ - 1) & ~(alignment_ - 1); }
  uint64_t used() const { return used_; }

 private:
  uint8_t* base_;
  uint64_t alignment_;
  uint64_t used_ = 0;
};

}  // namespace weft
