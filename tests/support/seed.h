// What a test draws from: WEFT_SEED, or the test's usual seed. Printed, so that a run that failed
// can be repeated, and fixed, so that a run which failed fails again. Any thread.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace weft::test {

inline uint64_t Seed(uint64_t usual) {
  const char* const given = std::getenv("WEFT_SEED");
  const uint64_t seed = given == nullptr ? usual : std::strtoull(given, nullptr, 10);
  std::cout << "seed " << seed << " (WEFT_SEED sets another)" << std::endl;
  return seed;
}

}  // namespace weft::test
