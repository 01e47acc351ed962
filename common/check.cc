#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace weft::internal {

void CheckFailed(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace weft::internal
