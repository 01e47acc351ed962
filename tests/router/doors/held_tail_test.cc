// Text that an answer holds back until its end (a cut character, the beginning of a stop string)
// reaches the client through every door, streamed or whole.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

// The tail comes with the end, which comes with the last token or after it.
Script TailScript(bool with_last_token) {
  if (with_last_token) {
    return {{Started(), Token(10, "one")},
            {Token(11, " two"), Finished(FinishReason::kLength, 2, " tail")}};
  }
  return {{Started(), Token(10, "one")},
          {Token(11, " two")},
          {Finished(FinishReason::kLength, 2, " tail")}};
}

// The texts of all events of a stream, joined: what stands behind `key` as a JSON string.
std::string Texts(const std::string& body, const std::string& key) {
  const std::string begin = absl::StrCat("\"", key, "\":\"");
  std::string texts;
  for (size_t at = body.find(begin); at != std::string::npos; at = body.find(begin, at + 1)) {
    const size_t text = at + begin.size();
    texts += body.substr(text, body.find('"', text) - text);
  }
  return texts;
}

TEST_CASE("The tail of an answer is in OpenAI's streams and whole answers", "[router][openai]") {
  DoorsFixture fixture;
  const std::string chat = R"({"messages":[{"role":"user","content":"x"}])";
  const std::string prompt = R"({"prompt":"x")";
  for (const bool with_last_token : {true, false}) {
    INFO("with the last token: " << with_last_token);
    fixture.intake.SetScript(TailScript(with_last_token));
    for (const char* stream : {"}", R"(,"stream":true})"}) {
      INFO(stream);
      const RawResponse of_chat = fixture.Post("/v1/chat/completions", chat + stream);
      CHECK(Texts(of_chat.body, "content") == "one two tail");
      CHECK(absl::StrContains(of_chat.body, R"("finish_reason":"length")"));
      const RawResponse of_prompt = fixture.Post("/v1/completions", prompt + stream);
      CHECK(Texts(of_prompt.body, "text") == "one two tail");
    }
  }
}

TEST_CASE("The tail of an answer is in TGI's streams and whole answers", "[router][tgi]") {
  DoorsFixture fixture;
  for (const bool with_last_token : {true, false}) {
    INFO("with the last token: " << with_last_token);
    fixture.intake.SetScript(TailScript(with_last_token));
    for (const char* path : {"/generate", "/generate_stream"}) {
      INFO(path);
      const RawResponse response = fixture.Post(path, R"({"inputs":"x"})");
      CHECK(Texts(response.body, "generated_text") == "one two tail");
    }
    CHECK(absl::StartsWith(
        Texts(fixture.Post("/generate_stream", R"({"inputs":"x"})").body, "text"), "one two"));
  }
}

}  // namespace
}  // namespace weft::router
