// Compiled without coverage of its own: the compiler's reference to the same symbols would be
// another one beside ours.

#include "tests/support/coverage_counters.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "common/check.h"

// Where this executable's counters begin and end; null without any.
extern "C" {
extern char __start___sancov_cntrs[] __attribute__((weak, visibility("hidden")));
extern char __stop___sancov_cntrs[] __attribute__((weak, visibility("hidden")));
}

namespace weft::test {

void ShareCoverageCounters() {
  const auto first = reinterpret_cast<uintptr_t>(&__start___sancov_cntrs[0]);
  const auto last = reinterpret_cast<uintptr_t>(&__stop___sancov_cntrs[0]);
  // The pages at both ends hold other variables too and stay as they are.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (first + page - 1) / page * page;
  const uintptr_t end = last / page * page;
  if (first == 0 || begin >= end) return;
  const std::string before(reinterpret_cast<const char*>(begin), end - begin);
  void* const at = mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  WEFT_CHECK(at != MAP_FAILED);
  std::memcpy(at, before.data(), before.size());
}

}  // namespace weft::test
