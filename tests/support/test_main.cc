// The one translation unit with Catch2's runner: its header is slow to compile with that in it.
// Exit codes: 0 passed, 1 failed, 77 all that ran was skipped.

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "tests/support/skip.h"

int main(int argc, char** argv) {
  // What failed, as a number that might be that of a skip.
  if (Catch::Session().run(argc, argv) != 0) return 1;
  return weft::test::AllSkipped() ? weft::test::kSkippedExit : 0;
}
