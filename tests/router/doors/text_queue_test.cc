// What HTTP doors say of prompts whose text waits elsewhere: too many wait, or much of it was
// served before.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

TEST_CASE("A long text that finds the queue of texts full is refused with a time to come back",
          "[router][http]") {
  DoorsFixture fixture;
  fixture.intake.FillTextQueue();
  const std::string text(1u << 20, 'x');
  struct Case {
    std::string path;
    std::string body;
  };
  const std::vector<Case> cases = {
      {"/generate", absl::StrCat(R"({"inputs":")", text, "\"}")},
      {"/tokenize", absl::StrCat(R"({"inputs":")", text, "\"}")},
      {"/v1/completions", absl::StrCat(R"({"prompt":")", text, "\"}")},
      {"/v1/chat/completions",
       absl::StrCat(R"({"messages":[{"role":"user","content":")", text, "\"}]}")},
  };
  for (const Case& test : cases) {
    INFO(test.path);
    const RawResponse response = fixture.Post(test.path, test.body);
    CHECK(response.status == 429);
    CHECK(response.headers.at("retry-after") == "1");
    CHECK(absl::StrContains(response.body, "too many texts wait"));
  }
  CHECK(fixture.intake.request_count() == 0);
  // Nobody's permit stays behind; it comes back a moment after the client has its answer, and each
  // further answer gives the server that time.
  for (int i = 0; i < 10'000 && fixture.intake.admission().waiting() > 0; ++i) {
    REQUIRE(fixture.Get("/health").status == 200);
  }
  CHECK(fixture.intake.admission().waiting() == 0);
  // A short text is read where it arrives.
  CHECK(fixture.Post("/generate", R"({"inputs":"x"})").status == 200);
}

TEST_CASE("OpenAI's usage says how much of the prompt the prefix cache held", "[router][openai]") {
  DoorsFixture fixture;
  for (const uint32_t cached : {0u, 16u, 96u}) {
    INFO(cached);
    fixture.intake.SetScript(
        {{Started(100, cached), Token(10, "x"), Finished(FinishReason::kLength, 1)}});
    const std::string usage =
        absl::StrCat(R"("prompt_tokens_details":{"cached_tokens":)", cached, "}");
    const std::string chat = R"({"messages":[{"role":"user","content":"x"}])";
    CHECK(absl::StrContains(fixture.Post("/v1/chat/completions", chat + "}").body, usage));
    CHECK(absl::StrContains(fixture.Post("/v1/completions", R"({"prompt":"x"})").body, usage));
    const RawResponse stream =
        fixture.Post("/v1/chat/completions",
                     chat + R"(,"stream":true,"stream_options":{"include_usage":true}})");
    CHECK(absl::StrContains(stream.body, usage));
  }
}

}  // namespace
}  // namespace weft::router
