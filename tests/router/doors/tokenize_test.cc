// vLLM's /tokenize beside TGI's, /detokenize, and the routes of models that are no decoders.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

// OpenAI's error of a field.
void CheckNames(const RawResponse& response, const std::string& field) {
  CHECK(response.status == 400);
  INFO(response.body);
  CHECK(absl::StrContains(response.body,
                          absl::StrCat("\"type\":\"invalid_request_error\",\"param\":\"", field,
                                       "\",\"code\":null}}")));
}

TEST_CASE("vLLM's tokenize form answers ids, their count and the context", "[router][openai]") {
  DoorsFixture fixture;
  CHECK(fixture.Post("/tokenize", R"({"prompt":"ab"})").body ==
        R"({"count":3,"max_model_len":2048,"tokens":[1,97,98],"token_strs":null})");
  CHECK(fixture
            .Post("/tokenize", R"({"model":"fake/model","prompt":"ab","add_special_tokens":false,)"
                               R"("return_token_strs":true})")
            .body == R"({"count":2,"max_model_len":2048,"tokens":[97,98],"token_strs":["a","b"]})");
}

TEST_CASE("vLLM's tokenize form takes a conversation with all that a template is given",
          "[router][openai]") {
  DoorsFixture fixture;
  const RawResponse response = fixture.Post(
      "/tokenize",
      R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false,)"
      R"("tools":[{"type":"function","function":{"name":"f"}}],"chat_template_kwargs":{"a":1},)"
      R"("add_special_tokens":false,"return_token_strs":true,"mm_processor_kwargs":null})");
  CHECK(response.body ==
        R"({"count":1,"max_model_len":2048,"tokens":[7],"token_strs":["user:x;"]})");
  CHECK(response.headers.count("x-weft-ignored-fields") == 0);
}

TEST_CASE("Tokenize is TGI's where there are inputs, or nothing that says whose it is",
          "[router][openai][tgi]") {
  DoorsFixture fixture;
  const RawResponse both = fixture.Post("/tokenize", R"({"inputs":"a","prompt":"b"})");
  CHECK(absl::StartsWith(both.body, R"([{"id":1,)"));
  CHECK(both.headers.at("x-weft-ignored-fields") == "prompt");
  const RawResponse none = fixture.Post("/tokenize", R"({"add_special_tokens":true})");
  CHECK(none.status == 422);
  CHECK(none.body == R"({"error":"`inputs`: is required","error_type":"validation"})");
}

TEST_CASE("What vLLM's tokenize form refuses is named", "[router][openai][fields]") {
  DoorsFixture fixture;
  const auto refused = [&](const std::string& body, const std::string& field) {
    INFO(body);
    CheckNames(fixture.Post("/tokenize", body), field);
  };
  refused(R"({"prompt":1})", "prompt");
  refused(R"({"prompt":""})", "prompt");
  refused(R"({"prompt":["a"]})", "prompt");
  refused(R"({"prompt":"a","messages":[{"role":"user","content":"x"}]})", "messages");
  refused(R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens");
  refused(R"({"prompt":"a","return_token_strs":"yes"})", "return_token_strs");
  refused(R"({"prompt":"a","model":3})", "model");
  refused(R"({"messages":[]})", "messages");
  refused(R"({"messages":[{"role":"user"}]})", "messages[0].content");
  const std::string chat = R"({"messages":[{"role":"user","content":"x"}],)";
  refused(chat + R"("add_special_tokens":true})", "add_special_tokens");
  refused(chat + R"("chat_template":"x"})", "chat_template");
  refused(chat + R"("add_generation_prompt":3})", "add_generation_prompt");
  refused(chat + R"("tools":{}})", "tools");
  const RawResponse other = fixture.Post("/tokenize", R"({"prompt":"a","model":"other"})");
  CHECK(other.status == 404);
  CHECK(absl::StrContains(other.body, R"("code":"model_not_found")"));
}

TEST_CASE("Detokenize answers the text of ids", "[router][openai]") {
  DoorsFixture fixture;
  CHECK(fixture.Post("/detokenize", R"({"model":"fake/model","tokens":[72,105]})").body ==
        R"({"prompt":"Hi"})");
  CHECK(fixture.Post("/detokenize", R"({"tokens":[]})").body == R"({"prompt":""})");
  const RawResponse more = fixture.Post("/detokenize", R"({"tokens":[72],"also":1})");
  CHECK(more.headers.at("x-weft-ignored-fields") == "also");
}

TEST_CASE("Ids that no vocabulary has are refused with the bounds", "[router][openai][fields]") {
  DoorsFixture fixture;
  for (const char* tokens : {"[-1]", "[1048576]", "[1.5]", "[\"a\"]", "[true]", "{}", "\"x\""}) {
    INFO(tokens);
    CheckNames(fixture.Post("/detokenize", absl::StrCat("{\"tokens\":", tokens, "}")), "tokens");
  }
  CHECK(absl::StrContains(fixture.Post("/detokenize", R"({"tokens":[1,-1]})").body,
                          "integers between 0 and 1048575; at index 1 is -1"));
  CheckNames(fixture.Post("/detokenize", "{}"), "tokens");
  CheckNames(fixture.Post("/detokenize", R"({"tokens":[1],"skip_special_tokens":1})"),
             "skip_special_tokens");
}

TEST_CASE("Routes of other kinds of models say so, whatever the body", "[router][openai]") {
  DoorsFixture fixture;
  for (const char* path :
       {"/v1/embeddings", "/embed", "/v1/rerank", "/rerank", "/v1/score", "/score"}) {
    for (const char* body : {R"({"input":"x"})", "[", ""}) {
      INFO(path << " " << body);
      const RawResponse response = fixture.Post(path, body);
      CHECK(response.status == 400);
      CHECK(response.body ==
            absl::StrCat(
                "{\"error\":{\"message\":\"", path,
                " is not served: `fake/model` is a decoder, which generates text and neither "
                "embeds nor ranks it\",\"type\":\"invalid_request_error\","
                "\"param\":null,\"code\":\"not_supported_by_model\"}}"));
    }
    CHECK(absl::StartsWith(fixture.Get(path).body, R"({"error":{"message")"));
  }
}

}  // namespace
}  // namespace weft::router
