// Calls of tools and reasoning that are told apart in answers, as OpenAI's and Anthropic's clients
// get them, whole and streamed; and requests that ask for calls in a wrong way.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json/parse.hpp"
#include "boost/json/value.hpp"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/parts_script.h"

namespace weft::router {
namespace {

namespace json = boost::json;

constexpr char kTools[] =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},)"
    R"({"type":"function","function":{"name":"g"}}])";
constexpr char kAnthropicTools[] =
    R"("tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{}}])";

struct PartsFixture : DoorsFixture {
  PartsFixture() {
    intake.SetParsers("hermes", "think");
    intake.SetScript(CallingScript());
  }
  json::value Ask(const std::string& path, const std::string& more) const {
    const RawResponse response = Post(
        path,
        absl::StrCat(R"({"max_tokens":99,"messages":[{"role":"user","content":"x"}],)", more, "}"));
    INFO(response.body);
    REQUIRE(response.status == 200);
    return json::parse(response.body);
  }
  // The JSON of a stream's events.
  std::vector<json::value> Stream(const std::string& path, const std::string& more) const {
    const RawResponse response =
        Post(path, absl::StrCat(R"({"max_tokens":99,"stream":true,"messages":[{"role":"user",)"
                                R"("content":"x"}],)",
                                more, "}"));
    REQUIRE(response.status == 200);
    return EventsOf(response.body);
  }
};

TEST_CASE("A chat's message has its calls and its reasoning apart", "[router][parts]") {
  PartsFixture fixture;
  const json::value body = fixture.Ask("/v1/chat/completions", kTools);
  const json::value& choice = body.at("choices").at(0);
  CHECK(choice.at("finish_reason") == "tool_calls");
  const json::value& message = choice.at("message");
  CHECK(message.at("content") == "Let me see.");
  CHECK(message.at("reasoning_content") == "So.");
  const json::array& calls = message.at("tool_calls").as_array();
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].at("type") == "function");
  CHECK(calls[0].at("function").at("name") == "f");
  CHECK(calls[0].at("function").at("arguments") == "{\"a\": 1}");
  CHECK(calls[1].at("function").at("name") == "g");
  CHECK(calls[1].at("function").at("arguments") == "{}");
  CHECK(absl::StartsWith(TextOf(calls[0].at("id")), "call_"));
  // The marks around the thought are its tokens, too.
  CHECK(body.at("usage").at("completion_tokens_details").at("reasoning_tokens") == 3);
  CHECK(calls[0].at("id") != calls[1].at("id"));
}

TEST_CASE("A chat's chunks put together are its message", "[router][parts]") {
  PartsFixture fixture;
  std::string content, reasoning, reason;
  std::vector<std::string> names, arguments;
  int roles = 0;
  for (const json::value& event : fixture.Stream("/v1/chat/completions", kTools)) {
    const json::value& choice = event.at("choices").at(0);
    if (choice.at("finish_reason").is_string()) reason = TextOf(choice.at("finish_reason"));
    const json::object& delta = choice.at("delta").as_object();
    roles += delta.contains("role") ? 1 : 0;
    if (delta.contains("content")) content += TextOf(delta.at("content"));
    if (delta.contains("reasoning_content")) reasoning += TextOf(delta.at("reasoning_content"));
    if (!delta.contains("tool_calls")) continue;
    for (const json::value& call : delta.at("tool_calls").as_array()) {
      const auto index = static_cast<size_t>(call.at("index").as_int64());
      const json::object& function = call.at("function").as_object();
      // Id, type and name come once, with the call's first chunk.
      CHECK(call.as_object().contains("id") == (index == names.size()));
      if (index == names.size()) {
        names.push_back(TextOf(function.at("name")));
        arguments.emplace_back();
      }
      arguments[index] += TextOf(function.at("arguments"));
    }
  }
  CHECK(roles == 1);
  CHECK(content == "Let me see.");
  CHECK(reasoning == "So.");
  CHECK(names == std::vector<std::string>{"f", "g"});
  CHECK(arguments == std::vector<std::string>{"{\"a\": 1}", "{}"});
  CHECK(reason == "tool_calls");
}

TEST_CASE("What is asked for decides what is told apart", "[router][parts]") {
  PartsFixture fixture;
  SECTION("no tools: their marks are content") {
    const json::value body = fixture.Ask("/v1/chat/completions", R"("n":1)");
    const json::value& choice = body.at("choices").at(0);
    CHECK(choice.at("finish_reason") == "stop");
    CHECK(!choice.at("message").as_object().contains("tool_calls"));
    CHECK(absl::StrContains(TextOf(choice.at("message").at("content")), "<tool_call>"));
    CHECK(choice.at("message").at("reasoning_content") == "So.");
  }
  SECTION("tools that may not be called") {
    const json::value body =
        fixture.Ask("/v1/chat/completions", absl::StrCat(kTools, R"(,"tool_choice":"none")"));
    CHECK(!body.at("choices").at(0).at("message").as_object().contains("tool_calls"));
    const auto& input = fixture.intake.WaitRequest(0)->input();
    CHECK(std::get<ChatPrompt>(input.prompt).tools.empty());
  }
  SECTION("one call") {
    const json::value body = fixture.Ask("/v1/chat/completions",
                                         absl::StrCat(kTools, R"(,"parallel_tool_calls":false)"));
    CHECK(body.at("choices").at(0).at("message").at("tool_calls").as_array().size() == 1);
  }
  SECTION("no reasoning") {
    const json::value body =
        fixture.Ask("/v1/chat/completions", absl::StrCat(kTools, R"(,"include_reasoning":false)"));
    const json::value& message = body.at("choices").at(0).at("message");
    CHECK(!message.as_object().contains("reasoning_content"));
    CHECK(message.at("content") == "Let me see.");
  }
  SECTION("required calls: other text is one that was cut off") {
    const json::value body =
        fixture.Ask("/v1/chat/completions", absl::StrCat(kTools, R"(,"tool_choice":"required")"));
    CHECK(body.at("choices").at(0).at("message").at("content").is_null());
    const auto& input = fixture.intake.WaitRequest(0)->input();
    REQUIRE(input.parts != nullptr);
    CHECK(input.parts->calls == PartsSpec::Calls::kRequired);
  }
}

TEST_CASE("The choice of tools is read", "[router][parts]") {
  PartsFixture fixture;
  const auto spec = [&fixture](const std::string& choice) {
    fixture.Ask("/v1/chat/completions", absl::StrCat(kTools, ",\"tool_choice\":", choice));
    return *fixture.intake.WaitRequest(fixture.intake.request_count() - 1)->input().parts;
  };
  const PartsSpec named = spec(R"({"type":"function","function":{"name":"g"}})");
  CHECK(named.calls == PartsSpec::Calls::kNamed);
  CHECK(named.named == "g");
  const PartsSpec allowed = spec(R"({"type":"allowed_tools","allowed_tools":{"mode":"required",)"
                                 R"("tools":[{"type":"function","function":{"name":"g"}}]}})");
  CHECK(allowed.calls == PartsSpec::Calls::kRequired);
  REQUIRE(allowed.tools.size() == 1);
  CHECK(allowed.tools[0].name == "g");
  CHECK(!spec("\"auto\"").HoldsCalls());
}

TEST_CASE("A choice of tools that cannot be met is refused by name", "[router][parts]") {
  PartsFixture fixture;
  const auto refused = [&fixture](const std::string& more, const std::string& param) {
    const RawResponse response =
        fixture.Post("/v1/chat/completions",
                     absl::StrCat(R"({"messages":[{"role":"user","content":"x"}],)", more, "}"));
    INFO(more << " " << response.body);
    CHECK(response.status == 400);
    CHECK(absl::StrContains(response.body, absl::StrCat("\"param\":\"", param, "\"")));
  };
  const std::string tools = absl::StrCat(kTools, ",");
  refused(R"("tool_choice":"required")", "tool_choice");
  refused(tools + R"("tool_choice":"maybe")", "tool_choice");
  refused(tools + R"("tool_choice":1)", "tool_choice");
  refused(tools + R"("tool_choice":{"type":"x"})", "tool_choice.type");
  refused(tools + R"("tool_choice":{"type":"function"})", "tool_choice.function");
  refused(tools + R"("tool_choice":{"type":"function","function":{}})",
          "tool_choice.function.name");
  refused(tools + R"("tool_choice":{"type":"function","function":{"name":"h"}})", "tool_choice");
  refused(tools + R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.allowed_tools");
  refused(tools + R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"x"}})",
          "tool_choice.allowed_tools.mode");
  refused(tools + R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[]}})",
          "tool_choice.allowed_tools.tools");
  refused(tools + R"("parallel_tool_calls":1)", "parallel_tool_calls");
  refused(R"("include_reasoning":1)", "include_reasoning");
  fixture.intake.SetParsers("none", "none");
  refused(tools + R"("tool_choice":"required")", "tool_choice");
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("A message of Anthropic's has blocks", "[router][parts]") {
  PartsFixture fixture;
  const json::value body = fixture.Ask("/v1/messages", kAnthropicTools);
  CHECK(body.at("type") == "message");
  CHECK(body.at("stop_reason") == "tool_use");
  CHECK(body.at("stop_sequence").is_null());
  const json::array& content = body.at("content").as_array();
  REQUIRE(content.size() == 4);
  CHECK(content[0].at("thinking") == "So.");
  CHECK(content[1].at("text") == "Let me see.");
  CHECK(content[2].at("name") == "f");
  CHECK(content[2].at("input").at("a") == 1);
  CHECK(content[3].at("input").as_object().empty());
  // Cached tokens are counted apart.
  CHECK(body.at("usage").at("input_tokens") == 2);
  CHECK(body.at("usage").at("cache_read_input_tokens") == 1);
  CHECK(body.at("usage").at("output_tokens") == 12);
}

TEST_CASE("Anthropic's events open and close each block in turn", "[router][parts]") {
  PartsFixture fixture;
  std::vector<std::string> kinds;
  std::string text, thinking;
  std::vector<std::string> inputs;
  for (const json::value& event : fixture.Stream("/v1/messages", kAnthropicTools)) {
    const std::string type = TextOf(event.at("type"));
    if (type == "content_block_start") {
      kinds.push_back(TextOf(event.at("content_block").at("type")));
      if (kinds.back() == "tool_use") inputs.emplace_back();
      CHECK(event.at("index") == static_cast<int64_t>(kinds.size() - 1));
    } else if (type == "content_block_delta") {
      const json::object& delta = event.at("delta").as_object();
      if (delta.contains("text")) text += TextOf(delta.at("text"));
      if (delta.contains("thinking")) thinking += TextOf(delta.at("thinking"));
      if (delta.contains("partial_json")) inputs.back() += TextOf(delta.at("partial_json"));
    } else if (type == "content_block_stop") {
      CHECK(event.at("index") == static_cast<int64_t>(kinds.size() - 1));
    } else {
      kinds.push_back(type);
      if (type == "message_start") kinds.clear();
    }
  }
  CHECK(kinds == std::vector<std::string>{"thinking", "text", "tool_use", "tool_use",
                                          "message_delta", "message_stop"});
  CHECK(text == "Let me see.");
  CHECK(thinking == "So.");
  CHECK(inputs == std::vector<std::string>{"{\"a\": 1}", "{}"});
}

TEST_CASE("Anthropic's conversation becomes one that templates know", "[router][parts]") {
  PartsFixture fixture;
  const RawResponse response = fixture.Post("/v1/messages", R"({"max_tokens":5,
    "system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
    "messages":[{"role":"user","content":"Weather?"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},
        {"type":"text","text":"One moment."},
        {"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"21"},
        {"type":"text","text":"And now?"}]},
      {"role":"assistant","content":"It is"}]})");
  INFO(response.body);
  REQUIRE(response.status == 200);
  const auto request = fixture.intake.WaitRequest(0);
  const auto& chat = std::get<ChatPrompt>(request->input().prompt);
  REQUIRE(chat.messages.size() == 6);
  CHECK(chat.messages[0].role == "system");
  CHECK(chat.messages[0].content == "Be brief.");
  CHECK(chat.messages[2].reasoning_content == "Hm.");
  CHECK(chat.messages[2].content == "One moment.");
  REQUIRE(chat.messages[2].tool_calls.size() == 1);
  CHECK(chat.messages[2].tool_calls[0].arguments == "{\"a\":1}");
  CHECK(chat.messages[3].role == "tool");
  CHECK(chat.messages[3].tool_call_id == "t1");
  CHECK(chat.messages[3].content == "21");
  CHECK(chat.messages[4].content == "And now?");
  // The answer goes on with what the assistant said last.
  CHECK(chat.continue_final_message);
  CHECK(!chat.add_generation_prompt);
}

TEST_CASE("Tokens of a message are counted without an answer", "[router][parts]") {
  PartsFixture fixture;
  const auto count = [&fixture](const std::string& body) {
    return fixture.Post("/v1/messages/count_tokens", body);
  };
  // The fake has one token for all of a text.
  const RawResponse good = count(R"({"messages":[{"role":"user","content":"x"}],"quux":1})");
  CHECK(good.status == 200);
  CHECK(good.body == R"({"input_tokens":1})");
  CHECK(good.headers.at("x-weft-ignored-fields") == "quux");
  const RawResponse bad = count(R"({"messages":[]})");
  CHECK(bad.status == 400);
  CHECK(absl::StrContains(bad.body, R"("type":"error")"));
  CHECK(absl::StrContains(bad.body, "`messages`: "));
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Anthropic's bodies are refused by name", "[router][parts]") {
  PartsFixture fixture;
  const auto refused = [&fixture](const std::string& body, const std::string& field) {
    const RawResponse response = fixture.Post("/v1/messages", body);
    INFO(body << " " << response.body);
    CHECK(response.status == 400);
    CHECK(absl::StrContains(
        response.body,
        absl::StrCat(R"({"type":"error","error":{"type":"invalid_request_error","message":"`)",
                     field, "`: ")));
  };
  const auto with = [](const std::string& more) {
    return absl::StrCat(R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],)", more,
                        "}");
  };
  refused(R"({"messages":[{"role":"user","content":"x"}]})", "max_tokens");
  refused(R"({"max_tokens":5})", "messages");
  refused(R"({"max_tokens":5,"messages":[]})", "messages");
  refused(R"({"max_tokens":5,"messages":["x"]})", "messages[0]");
  refused(R"({"max_tokens":5,"messages":[{"role":"system","content":"x"}]})", "messages[0].role");
  refused(R"({"max_tokens":5,"messages":[{"role":"user"}]})", "messages[0].content");
  refused(R"({"max_tokens":5,"messages":[{"role":"user","content":[]}]})", "messages[0].content");
  refused(R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
          "messages[0].content[0].type");
  refused(R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"text"}]}]})",
          "messages[0].content[0].text");
  refused(with(R"("system":1)"), "system");
  refused(with(R"("temperature":-1)"), "temperature");
  refused(with(R"("stop_sequences":[""])"), "stop_sequences");
  refused(with(R"("tools":[{"name":"f"}])"), "tools[0].input_schema");
  refused(with(R"("tools":[{"name":"f g","input_schema":{}}])"), "tools[0].name");
  refused(with(R"("tools":[{"type":"bash_20250124","name":"bash"}])"), "tools[0].type");
  refused(with(R"("tool_choice":{"type":"x"})"), "tool_choice.type");
  refused(with(R"("tool_choice":{"type":"any"})"), "tool_choice");
  refused(with(R"("thinking":{"type":"x"})"), "thinking.type");
  refused(with(R"("mcp_servers":[{}])"), "mcp_servers");
  CHECK(fixture.intake.request_count() == 0);
}

}  // namespace
}  // namespace weft::router
