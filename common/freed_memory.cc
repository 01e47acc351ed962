#include "common/freed_memory.h"

#include <malloc.h>

#include <algorithm>

#include "common/process_stat.h"

namespace weft {
namespace {

constexpr int kMappedBytesMin = 128 << 10;
constexpr int kTrimBytes = 4 << 20;

}  // namespace

void LimitFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytesMin);
  mallopt(M_TRIM_THRESHOLD, kTrimBytes);
}

FreedMemory::FreedMemory(uint64_t growth_bytes_max)
    : growth_bytes_max_(growth_bytes_max), least_bytes_(ResidentBytes()) {}

bool FreedMemory::ReturnIfGrown() {
  const uint64_t resident = ResidentBytes();
  least_bytes_ = std::min(least_bytes_, resident);
  if (resident - least_bytes_ < growth_bytes_max_) return false;
  malloc_trim(0);
  least_bytes_ = ResidentBytes();
  return true;
}

}  // namespace weft
