#include "common/freed_memory.h"

#include <malloc.h>

#include <algorithm>

#include "common/process_stat.h"

namespace weft {
namespace {

constexpr int kMappedBytesMin = 128 << 10;
constexpr int kTrimBytes = 4 << 20;
// Between two returns while the process does not grow, and by how much one must make it smaller for
// the next to come as soon.
constexpr int64_t kPauseMinUs = 1'000'000;
constexpr int64_t kPauseMaxUs = 30'000'000;
constexpr uint64_t kUsefulBytes = 1 << 20;

}  // namespace

void LimitFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytesMin);
  mallopt(M_TRIM_THRESHOLD, kTrimBytes);
}

FreedMemory::FreedMemory(uint64_t growth_bytes_max)
    : growth_bytes_max_(growth_bytes_max),
      floor_bytes_(ResidentBytes()),
      least_bytes_(floor_bytes_) {}

bool FreedMemory::ReturnIfGrown(int64_t now_us) {
  const uint64_t resident = ResidentBytes();
  least_bytes_ = std::min(least_bytes_, resident);
  floor_bytes_ = std::min(floor_bytes_, resident);
  const bool grown = resident - least_bytes_ >= growth_bytes_max_;
  // What was in use at the last return may have been freed since.
  const bool again = resident - floor_bytes_ >= growth_bytes_max_ && now_us >= again_us_;
  if (!grown && !again) return false;
  malloc_trim(0);
  least_bytes_ = ResidentBytes();
  floor_bytes_ = std::min(floor_bytes_, least_bytes_);
  const bool useful = least_bytes_ + kUsefulBytes <= resident;
  pause_us_ = useful || grown ? kPauseMinUs : std::min(2 * pause_us_, kPauseMaxUs);
  again_us_ = now_us + pause_us_;
  return true;
}

}  // namespace weft
