// Runs every file of tests/transcripts. With WEFT_REWRITE_TRANSCRIPTS=1 in the environment it
// writes the output it got into the files instead; the difference is then for the reviewer.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tests/router/scheduler/transcript.h"
#include "tests/support/rewrite.h"

namespace weft::router {
namespace {

std::vector<std::filesystem::path> TranscriptPaths() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_TRANSCRIPTS_DIR)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST_CASE("At least 25 transcripts describe the scheduler's policy", "[router][scheduler]") {
  REQUIRE(TranscriptPaths().size() >= 25);
}

TEST_CASE("Every scheduler transcript gives the output it states", "[router][scheduler]") {
  const bool rewrite = test::RewriteAsked("WEFT_REWRITE_TRANSCRIPTS");
  for (const auto& path : TranscriptPaths()) {
    DYNAMIC_SECTION(path.filename().string()) {
      std::stringstream text;
      text << std::ifstream(path).rdbuf();
      const TranscriptResult result = RunTranscript(text.str());
      REQUIRE(result.error == "");
      if (rewrite) {
        std::ofstream(path) << result.actual;
      } else {
        REQUIRE(result.actual == text.str());
      }
    }
  }
}

}  // namespace
}  // namespace weft::router
