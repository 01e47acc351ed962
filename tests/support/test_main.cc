// The one translation unit with Catch2's runner: its header is slow to compile with that in it.
// Exit codes: 0 passed, 1 failed or nothing fits the filter, 77 all that ran was skipped.

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "tests/support/skip.h"

int main(int argc, char** argv) {
  Catch::Session session;
  session.configData().warnings = Catch::WarnAbout::NoTests;
  // What failed, as a number that might be that of a skip.
  if (session.run(argc, argv) != 0) return 1;
  return weft::test::AllSkipped() ? weft::test::kSkippedExit : 0;
}
