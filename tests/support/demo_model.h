// Where the demo model is: WEFT_DEMO_MODEL, or the cache that deploy/setup.sh fills.

#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/skip.h"

namespace weft::test {

// It may not be there.
inline std::string DemoModelPath() {
  if (const char* const path = std::getenv("WEFT_DEMO_MODEL")) return path;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::string base =
      cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return base + "/weft/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// For tests: one that has no demo model is skipped.
inline std::string DemoModelOrSkip() {
  std::string path = DemoModelPath();
  if (!std::filesystem::exists(path)) {
    SkipTest("demo", "nothing at " + path + "; deploy/setup.sh fetches it");
  }
  return path;
}

}  // namespace weft::test
