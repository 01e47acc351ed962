#include "tests/sim/router/virtual_time.h"

#include <algorithm>

namespace weft::router::sim {

void VirtualTime::At(int64_t at_us, Happening* what, uint32_t kind, uint64_t value) {
  heap_.push_back({std::max(at_us, now_us_), order_++, what, kind, value});
  std::push_heap(heap_.begin(), heap_.end(), Later);
}

bool VirtualTime::Next() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  const Entry entry = heap_.back();
  heap_.pop_back();
  now_us_ = entry.at_us;
  entry.what->OnTime(entry.kind, entry.value);
  return true;
}

}  // namespace weft::router::sim
