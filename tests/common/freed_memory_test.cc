#include "common/freed_memory.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

namespace weft {
namespace {

size_t ResidentBytes() {
  size_t whole = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_CASE("Freed memory between blocks in use goes back to the system", "[common]") {
  constexpr size_t kBlocks = 2000;
  constexpr size_t kBytes = 64u << 10;
  const size_t before = ResidentBytes();
  std::vector<std::string> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.emplace_back(kBytes, 'x');
  REQUIRE(ResidentBytes() > before + kBlocks * kBytes / 2);
  for (size_t i = 0; i < kBlocks; ++i) {
    if (i % 50 != 0) std::string().swap(blocks[i]);  // the others keep the heap from shrinking
  }
  CHECK(ReturnFreedMemory(1u << 20) > kBlocks * kBytes / 2);
  CHECK(ResidentBytes() < before + kBlocks * kBytes / 4);
}

}  // namespace
}  // namespace weft
