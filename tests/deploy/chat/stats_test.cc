// Counts and times in words.

#include "deploy/launcher/chat/stats.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace weft::launcher {
namespace {

TEST_CASE("Stats tell of the last answer, of all, and of the context", "[chat]") {
  Stats stats;
  CHECK(absl::StrContains(stats.Report(100), "no answer yet"));
  CHECK(absl::StrContains(stats.Report(100), "0 tokens used, 100 left of 100"));
  Answer answer;
  answer.prompt_tokens = 30;
  answer.cached_tokens = 16;
  answer.output_tokens = 21;
  answer.to_first_token = absl::Milliseconds(35);
  answer.after_first_token = absl::Seconds(2);
  stats.Add(answer);
  CHECK(stats.LastLine() ==
        "21 tokens, first after 35 ms, then 10.0 tokens/s; 30 of prompt, 16 cached");
  stats.Add(answer);
  const std::string report = stats.Report(100);
  CHECK(absl::StrContains(report, "all answers  2: 42 tokens"));
  CHECK(absl::StrContains(report, "prompts: 60 tokens, 32 of them cached"));
  CHECK(absl::StrContains(report, "51 tokens used, 49 left of 100"));
  CHECK(absl::StrContains(stats.Report(40), "0 left of 40"));
  stats.ForgetContext();
  CHECK(absl::StrContains(stats.Report(100), "0 tokens used"));
  // A single token has no rate.
  answer.output_tokens = 1;
  stats.Add(answer);
  CHECK(absl::StrContains(stats.LastLine(), "then 0.0 tokens/s"));
}

}  // namespace
}  // namespace weft::launcher
