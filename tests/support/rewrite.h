// Tests that compare with committed files can write them anew, for a person who then reviews the
// difference. In continuous integration (CI=true) that would make every comparison hold: there the
// test fails instead. The test's own thread.

#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

namespace weft::test {

// The environment's `variable` asks for it.
inline bool RewriteAsked(const char* variable) {
  if (std::getenv(variable) == nullptr) return false;
  const char* const ci = std::getenv("CI");
  if (ci != nullptr && std::string(ci) == "true") {
    FAIL(variable << " is refused where CI=true: the files are what the test compares with");
  }
  return true;
}

}  // namespace weft::test
