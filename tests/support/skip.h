// How a test says that it cannot run here: by name of the capability that the machine or the build
// lacks (capabilities.inc) and with the reason. ctest then shows "Skipped" and not "Passed". Where
// the environment's WEFT_REQUIRE names the capability (a list, as "demo,avx2"), the test fails
// instead: so a machine that must have it cannot lose it unseen. Called by the test's own thread.

#pragma once

#include <string>

namespace weft::test {

// The exit code of a run in which nothing failed and every test was skipped.
inline constexpr int kSkippedExit = 77;

// Ends the test here.
[[noreturn]] void SkipTest(const char* capability, const std::string& reason);

// Leaves out a part of the test, which goes on: the log says so, and ctest shows what the rest did.
// A test of which nothing is left counts as skipped.
void LeaveOut(const char* capability, const std::string& reason);

// WEFT_REQUIRE names it.
bool IsRequired(const char* capability);

// Something ran, and all of it was skipped; for main.
bool AllSkipped();

}  // namespace weft::test
