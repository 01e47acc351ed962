#include "common/freed_memory.h"

#include <malloc.h>

namespace weft {
namespace {

constexpr int kMappedBytesMin = 128 << 10;
constexpr int kTrimBytes = 4 << 20;

}  // namespace

void LimitFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytesMin);
  mallopt(M_TRIM_THRESHOLD, kTrimBytes);
}

size_t ReturnFreedMemory(size_t kept_bytes_max) {
  const size_t kept = mallinfo2().fordblks;
  if (kept > kept_bytes_max) malloc_trim(0);
  return kept;
}

}  // namespace weft
