// Tests that pass, fail and cannot run, for test_skips.py, which looks at how the executable ends.

#include <catch2/catch.hpp>

#include "tests/support/rewrite.h"
#include "tests/support/skip.h"

namespace weft::test {
namespace {

TEST_CASE("passes") { CHECK(true); }

TEST_CASE("fails") { CHECK(false); }

TEST_CASE("cannot run") {
  CHECK(true);
  SkipTest("avx2", "asked to");
  CHECK(false);
}

TEST_CASE("cannot run in a section") {
  SECTION("a") { CHECK(true); }
  SECTION("b") { SkipTest("avx2", "asked to"); }
}

TEST_CASE("lacks a part") {
  LeaveOut("avx2", "asked to");
  CHECK(true);
}

TEST_CASE("lacks all parts") {
  for (int i = 0; i < 2; ++i) LeaveOut("avx2", "asked to");
}

TEST_CASE("has too many failures") {
  for (int i = 0; i < kSkippedExit; ++i) CHECK(i < 0);
}

TEST_CASE("rewrites") {
  if (RewriteAsked("WEFT_SAMPLE_REWRITE")) WARN("would rewrite");
}

}  // namespace
}  // namespace weft::test
