// Ollama's routes: what becomes of their bodies, and answers, whole and as lines of JSON.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/parts_script.h"

namespace weft::router {
namespace {

namespace json = boost::json;

constexpr char kMessages[] = R"("messages":[{"role":"user","content":"x"}])";
constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},)"
    R"({"type":"function","function":{"name":"g"}}])";

struct OllamaFixture : DoorsFixture {
  OllamaFixture() {
    intake.SetParsers("hermes", "think");
    intake.SetScript(CallingScript());
  }
  std::vector<json::value> Lines(const std::string& path, const std::string& body) const {
    const RawResponse response = Post(path, body);
    INFO(body << "\n" << response.body);
    REQUIRE(response.status == 200);
    std::vector<json::value> lines;
    for (const absl::string_view line : absl::StrSplit(response.body, '\n', absl::SkipEmpty())) {
      lines.push_back(json::parse({line.data(), line.size()}));
    }
    return lines;
  }
  const GenerateInput& Last() { return intake.WaitRequest(intake.request_count() - 1)->input(); }
};

TEST_CASE("A chat's lines put together are its whole answer", "[router][ollama]") {
  OllamaFixture fixture;
  const std::string body =
      absl::StrCat("{\"model\":\"fake/model:latest\",", kMessages, ",", kTools);
  std::string content, thinking;
  const std::vector<json::value> lines = fixture.Lines("/api/chat", body + "}");
  for (const json::value& line : lines) {
    CHECK(line.at("model") == "fake/model:latest");
    CHECK(line.at("done") == (&line == &lines.back()));
    const json::object& message = line.at("message").as_object();
    content += TextOf(message.at("content"));
    if (message.contains("thinking")) thinking += TextOf(message.at("thinking"));
    CHECK(message.contains("tool_calls") == (&line == &lines.back()));
  }
  CHECK(content == "Let me see.");
  CHECK(thinking == "So.");
  const json::value& last = lines.back();
  CHECK(json::serialize(last.at("message").at("tool_calls")) ==
        R"([{"function":{"name":"f","arguments":{"a":1}}},)"
        R"({"function":{"name":"g","arguments":{}}}])");
  CHECK(last.at("done_reason") == "stop");
  CHECK(last.at("eval_count") == 12);
  CHECK(last.at("prompt_eval_count") == 3);
  for (const char* name :
       {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}) {
    CHECK(last.at(name).as_int64() >= 0);
  }
  const std::vector<json::value> whole = fixture.Lines("/api/chat", body + ",\"stream\":false}");
  REQUIRE(whole.size() == 1);
  CHECK(TextOf(whole[0].at("message").at("content")) == content);
  CHECK(TextOf(whole[0].at("message").at("thinking")) == thinking);
  CHECK(whole[0].at("message").at("tool_calls") == last.at("message").at("tool_calls"));
}

TEST_CASE("Ollama's words become a request", "[router][ollama]") {
  OllamaFixture fixture;
  fixture.Lines("/api/chat", R"({"messages":[{"role":"user","content":"x","images":null},
    {"role":"assistant","content":"y","thinking":"Hm.","tool_calls":[{"function":{"name":"f",
      "arguments":{"a":1}}}]},
    {"role":"tool","content":"21","tool_name":"f"}],
    "think":"low","keep_alive":"5m","format":{"type":"object"},
    "options":{"temperature":0.5,"repeat_penalty":1.5,"num_predict":7,"num_ctx":4096,"seed":3,
      "stop":["a"],"top_k":5}})");
  const GenerateInput& input = fixture.Last();
  const ChatPrompt& chat = std::get<ChatPrompt>(input.prompt);
  REQUIRE(chat.messages.size() == 3);
  CHECK(chat.messages[1].reasoning_content == "Hm.");
  CHECK(chat.messages[1].tool_calls[0].arguments == "{\"a\":1}");
  CHECK(chat.messages[2].name == "f");
  CHECK(chat.reasoning_effort == "low");
  CHECK(input.sampling.temperature == 0.5f);
  CHECK(input.sampling.repetition_penalty == 1.5f);
  CHECK(input.sampling.top_k == 5);
  CHECK(input.max_tokens == 7);
  CHECK(input.seed == 3);
  CHECK(input.stop_sequences == std::vector<std::string>{"a"});
  CHECK(input.grammar.has_value());
}

TEST_CASE("A prompt is a conversation unless it is raw", "[router][ollama]") {
  OllamaFixture fixture;
  const std::vector<json::value> lines =
      fixture.Lines("/api/generate", R"({"prompt":"x","system":"s","think":false,"format":"json",)"
                                     R"("options":{"num_predict":-1}})");
  CHECK(lines.front().as_object().contains("response"));
  const ChatPrompt chat = std::get<ChatPrompt>(fixture.Last().prompt);
  REQUIRE(chat.messages.size() == 2);
  CHECK(chat.messages[0].content == "s");
  CHECK(chat.template_kwargs == R"({"enable_thinking":false})");
  CHECK(fixture.Last().grammar->kind == GrammarSpec::Kind::kJsonObject);
  CHECK_FALSE(fixture.Last().max_tokens.has_value());
  fixture.Lines("/api/generate", R"({"prompt":"x","raw":true})");
  CHECK(std::get<std::string>(fixture.Last().prompt) == "x");
}

TEST_CASE("Ollama's bodies are refused by name, with its shape of errors", "[router][ollama]") {
  OllamaFixture fixture;
  const auto refused = [&fixture](const char* path, const std::string& body,
                                  const std::string& field) {
    const RawResponse response = fixture.Post(path, absl::StrCat("{", body, "}"));
    INFO(body << " " << response.body);
    CHECK(response.status == 422);
    CHECK(absl::StrContains(response.body, absl::StrCat("{\"error\":\"`", field, "`: ")));
  };
  const auto chat = [&](const std::string& more, const std::string& field) {
    refused("/api/chat", absl::StrCat(kMessages, ",", more), field);
  };
  refused("/api/chat", R"("messages":[])", "messages");
  refused("/api/chat", R"("messages":[{"role":"user","content":"x","images":["a"]}])",
          "messages[0].images");
  refused("/api/generate", R"("prompt":"")", "prompt");
  refused("/api/generate", R"("prompt":"x","suffix":"y")", "suffix");
  refused("/api/generate", R"("prompt":"x","template":"y")", "template");
  refused("/api/generate", R"("prompt":"x","context":[1])", "context");
  refused("/api/generate", R"("prompt":"x","images":["a"])", "images");
  refused("/api/generate", R"("prompt":"x","raw":true,"system":"y")", "system");
  chat(R"("stream":1)", "stream");
  chat(R"("think":1)", "think");
  chat(R"("think":"much")", "think");
  chat(R"("format":"xml")", "format");
  chat(R"("options":1)", "options");
  chat(R"("options":{"num_predict":0})", "options.num_predict");
  chat(R"("options":{"temperature":-1})", "options.temperature");
  chat(R"("options":{"repeat_penalty":0})", "options.repeat_penalty");
  chat(R"("options":{"mirostat":1})", "options.mirostat");
  chat(R"("logprobs":true)", "logprobs");
  CHECK(fixture.intake.request_count() == 0);
  CHECK(fixture.Post("/api/chat", absl::StrCat("{\"model\":\"x\",", kMessages, "}")).status == 404);
}

TEST_CASE("The served model has a tag", "[router][ollama]") {
  OllamaFixture fixture;
  const json::value tags = json::parse(fixture.Get("/api/tags").body);
  CHECK(tags.at("models").at(0).at("name") == "fake/model");
}

}  // namespace
}  // namespace weft::router
