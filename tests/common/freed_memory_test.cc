#include "common/freed_memory.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/process_stat.h"

namespace weft {
namespace {

// Sanitizers bring allocators of their own, which keep freed memory back.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_CASE("Freed memory between blocks in use goes back to the system", "[common]") {
  constexpr size_t kBlocks = 2000;
  constexpr size_t kBytes = 64u << 10;
  const uint64_t before = ResidentBytes();
  FreedMemory freed(kBlocks * kBytes / 4);
  CHECK_FALSE(freed.ReturnIfGrown(0));
  std::vector<std::string> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.emplace_back(kBytes, 'x');
  REQUIRE(ResidentBytes() > before + kBlocks * kBytes / 2);
  for (size_t i = 0; i < kBlocks; ++i) {
    if (i % 50 != 0) std::string().swap(blocks[i]);  // the others keep the heap from shrinking
  }
  CHECK(freed.ReturnIfGrown(0));
  CHECK(ResidentBytes() < before + kBlocks * kBytes / 4);
  // What is in use is no reason to look for freed memory again.
  CHECK_FALSE(freed.ReturnIfGrown(0));
}

TEST_CASE("What is freed after the last growth goes back too", "[common]") {
  constexpr size_t kBlocks = 2000;
  constexpr size_t kBytes = 64u << 10;
  const uint64_t before = ResidentBytes();
  FreedMemory freed(kBlocks * kBytes / 4);
  std::vector<std::string> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.emplace_back(kBytes, 'x');
  int64_t now_us = 0;
  CHECK(freed.ReturnIfGrown(now_us));  // all of it is in use
  for (int i = 0; i < 10; ++i) {
    now_us += 60'000'000;
    CHECK(freed.ReturnIfGrown(now_us));
    CHECK_FALSE(freed.ReturnIfGrown(now_us + 900'000));
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    if (i % 50 != 0) std::string().swap(blocks[i]);
  }
  CHECK(freed.ReturnIfGrown(now_us + 60'000'000));
  CHECK(ResidentBytes() < before + kBlocks * kBytes / 4);
}

#endif

}  // namespace
}  // namespace weft
