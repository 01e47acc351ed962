#include "tests/support/skip.h"

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>

namespace weft::test {
namespace {

constexpr const char* kCapabilities[] = {
#include "tests/support/capabilities.inc"
};

bool IsKnown(const std::string& capability) {
  return std::find(std::begin(kCapabilities), std::end(kCapabilities), capability) !=
         std::end(kCapabilities);
}

// A name that nothing has would require nothing.
[[noreturn]] void Unknown(const std::string& capability) {
  std::cerr << "no capability is called \"" << capability
            << "\"; tests/support/capabilities.inc has those that are known\n";
  std::exit(2);
}

void Say(const char* how, const char* capability, const std::string& reason) {
  if (!IsKnown(capability)) Unknown(capability);
  const std::string test = Catch::getResultCapture().getCurrentTestName();
  if (IsRequired(capability)) {
    FAIL("WEFT_REQUIRE names " << capability << ", which is missing: " << reason);
  }
  // A test that goes through many shapes would say the same for each.
  static std::set<std::string> said;
  const std::string line = std::string(how) + " \"" + test + "\", no " + capability + ": " + reason;
  if (said.insert(line).second) std::cout << line << std::endl;
}

// Of the tests that ran, those that said that they cannot.
int tests_ended = 0;
int tests_skipped = 0;
// Of the test that runs.
bool skips = false;
bool leaves_out = false;

class SkipCounter : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override { IsRequired(""); }
  void testCaseStarting(const Catch::TestCaseInfo&) override { skips = leaves_out = false; }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++tests_ended;
    tests_skipped += skips || (leaves_out && stats.totals.assertions.total() == 0);
  }
  void testRunEnded(const Catch::TestRunStats&) override {
    if (tests_skipped == 0) return;
    std::cout << "SKIPPED " << tests_skipped << " of " << tests_ended << " tests" << std::endl;
  }
};

CATCH_REGISTER_LISTENER(SkipCounter)

}  // namespace

void SkipTest(const char* capability, const std::string& reason) {
  Say("SKIPPED", capability, reason);
  skips = true;
  // Ends the test like a failed REQUIRE, with nothing that failed.
  throw Catch::TestFailureException();
}

void LeaveOut(const char* capability, const std::string& reason) {
  Say("LEFT OUT, part of", capability, reason);
  leaves_out = true;
}

bool IsRequired(const char* capability) {
  const char* const required = std::getenv("WEFT_REQUIRE");
  std::istringstream names(required == nullptr ? "" : required);
  bool found = false;
  for (std::string name; std::getline(names, name, ',');) {
    if (!IsKnown(name)) Unknown(name);
    found |= name == capability;
  }
  return found;
}

bool AllSkipped() { return tests_ended > 0 && tests_skipped == tests_ended; }

}  // namespace weft::test
