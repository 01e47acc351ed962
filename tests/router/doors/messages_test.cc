// Conversations as HTTP and gRPC take them: what becomes of messages, tools, documents and what
// else a chat template is given.

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/doors/grpc/chat.h"
#include "tests/router/doors/field_bodies.h"

namespace weft::router {
namespace {

constexpr char kTool[] =
    R"({"type":"function","function":{"name":"look_up-1","description":"d",)"
    R"("parameters":{"type":"object","properties":{"x":{"type":"number","default":1.5}}},)"
    R"("strict":false}})";

// What a body without an error becomes.
const ChatPrompt& Take(DoorsFixture& fixture, size_t number, const std::string& body) {
  const RawResponse response = fixture.Post("/v1/chat/completions", body);
  INFO(body << "\n" << response.body);
  REQUIRE(response.status == 200);
  CHECK(response.headers.count("x-weft-ignored-fields") == 0);
  return std::get<ChatPrompt>(fixture.intake.WaitRequest(number)->input().prompt);
}

TEST_CASE("Calls of tools and their answers reach the engine", "[router][fields]") {
  DoorsFixture fixture;
  const ChatPrompt& chat =
      Take(fixture, 0,
           R"({"messages":[{"role":"user","content":"a","name":"Ada"},)"
           R"({"role":"assistant","content":null,)"
           R"("refusal":null,"annotations":[],"audio":null,"function_call":null,"reasoning":"hm",)"
           R"("tool_calls":[{"id":"call_1","type":"function","index":0,"function":{"name":"f",)"
           R"("arguments":"{\"x\": 1.0}"}},{"function":{"name":"g","arguments":{"y":[2]}}},)"
           R"({"id":"c","type":"function","function":{"name":"h","arguments":""}}]},)"
           R"({"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"r"}]},)"
           R"({"role":"assistant","content":"","tool_calls":[]},)"
           R"({"role":"assistant","content":"b","reasoning_content":"c"}]})");
  REQUIRE(chat.messages.size() == 5);
  CHECK(chat.messages[0].name == "Ada");
  CHECK_FALSE(chat.messages[0].no_content);
  const ChatMessage& call = chat.messages[1];
  CHECK(call.no_content);
  CHECK(call.reasoning_content == "hm");
  REQUIRE(call.tool_calls.size() == 3);
  CHECK(call.tool_calls[0].id == "call_1");
  CHECK(call.tool_calls[0].name == "f");
  CHECK(call.tool_calls[0].arguments == "{\"x\": 1.0}");
  CHECK(call.tool_calls[1].arguments == "{\"y\":[2]}");
  CHECK(call.tool_calls[2].arguments == "{}");
  CHECK(chat.messages[2].role == "tool");
  CHECK(chat.messages[2].tool_call_id == "call_1");
  CHECK(chat.messages[2].content_parts == std::vector<std::string>{"r"});
  CHECK_FALSE(chat.messages[3].no_content);
  CHECK(chat.messages[3].tool_calls.empty());
  CHECK(chat.messages[4].reasoning_content == "c");
  CHECK(chat.add_generation_prompt);
  CHECK_FALSE(chat.continue_final_message);
}

TEST_CASE("Tools, documents and variables of the template reach the engine", "[router][fields]") {
  DoorsFixture fixture;
  const ChatPrompt& chat = Take(
      fixture, 0,
      With(Body::kChat, absl::StrCat("\"tools\":[", kTool,
                                     R"(],"documents":[{"title":"t","text":"x"},{}],)"
                                     R"("chat_template_kwargs":{"enable_thinking":false,"n":[1]},)"
                                     R"("reasoning_effort":"high","tool_choice":"auto")")));
  CHECK(boost::json::parse(chat.tools) == boost::json::parse(absl::StrCat("[", kTool, "]")));
  CHECK(chat.documents == R"([{"title":"t","text":"x"},{}])");
  CHECK(chat.template_kwargs == R"({"enable_thinking":false,"n":[1]})");
  CHECK(chat.reasoning_effort == "high");
  // Tools that may not be called are checked and not shown.
  CHECK(Take(fixture, 1,
             With(Body::kChat, absl::StrCat("\"tools\":[", kTool, "],\"tool_choice\":\"none\"")))
            .tools.empty());
  const ChatPrompt& open =
      Take(fixture, 2, With(Body::kChat, "\"continue_final_message\":true,\"tools\":[]"));
  CHECK(open.continue_final_message);
  CHECK_FALSE(open.add_generation_prompt);
  CHECK(open.tools.empty());
  const ChatPrompt& neutral =
      Take(fixture, 3,
           With(Body::kChat, R"("documents":[],"chat_template_kwargs":{},"chat_template":null,)"
                             R"("continue_final_message":false,"tool_choice":"none")"));
  CHECK(neutral.documents.empty());
  CHECK(neutral.template_kwargs.empty());
  CHECK(neutral.add_generation_prompt);
}

TEST_CASE("Unknown fields of messages are named with their path", "[router][fields]") {
  DoorsFixture fixture;
  const RawResponse response = fixture.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"x","a":1}],"b":2},)"
      R"({"role":"assistant","tool_calls":[{"c":3,"function":{"name":"f","d":4}}]}]})");
  CHECK(response.status == 200);
  CHECK(response.headers.at("x-weft-ignored-fields") ==
        "messages[0].content[0].a, messages[0].b, messages[1].tool_calls[0].c, "
        "messages[1].tool_calls[0].function.d");
}

TEST_CASE("TGI's route for tokens of a conversation takes one", "[router][fields]") {
  DoorsFixture fixture;
  const std::string body =
      With(Body::kChat, absl::StrCat("\"tools\":[", kTool, "],\"reasoning_effort\":\"low\""));
  const RawResponse chat = fixture.Post("/chat_tokenize", body);
  CHECK(chat.status == 200);
  CHECK(chat.body ==
        R"({"tokenize_response":[{"id":7,"text":"user:x;"}],"templated_text":"user:x;"})");
  const RawResponse wrong = fixture.Post("/chat_tokenize", R"({"messages":[{"role":"user"}]})");
  CHECK(wrong.status == 422);
  CHECK(absl::StrContains(wrong.body, "`messages[0].content`"));
}

// -- gRPC ----------------------------------------------------------------------------------------

TEST_CASE("A gRPC conversation is read whole", "[router][fields]") {
  weft::v1::ChatPrompt from;
  weft::v1::ChatMessage* message = from.add_messages();
  message->set_role("user");
  message->add_content_parts("a");
  message->add_content_parts("b");
  message->set_name("Ada");
  message = from.add_messages();
  message->set_role("assistant");
  message->set_reasoning_content("hm");
  weft::v1::ToolCall* call = message->add_tool_calls();
  call->set_id("1");
  call->set_name("f");
  call->set_arguments("{\"x\": 1}");
  message->add_tool_calls()->set_name("g");
  message = from.add_messages();
  message->set_role("tool");
  message->set_content("r");
  message->set_tool_call_id("1");
  from.add_tools(kTool);
  from.add_documents("{\"text\": \"x\"}");
  from.set_chat_template_kwargs("{\"enable_thinking\": true}");
  from.set_reasoning_effort("low");
  from.set_continue_final_message(true);
  from.set_parallel_tool_calls(false);
  from.mutable_tool_choice()->set_mode(weft::v1::TOOL_CHOICE_MODE_REQUIRED);
  ToolChoice choice;
  const auto chat = ReadChat(&from, &choice);
  INFO(chat.status().ToString());
  REQUIRE(chat.ok());
  CHECK(chat->messages[0].content_parts == std::vector<std::string>{"a", "b"});
  CHECK(chat->messages[0].name == "Ada");
  CHECK(chat->messages[1].no_content);
  CHECK(chat->messages[1].reasoning_content == "hm");
  CHECK(chat->messages[1].tool_calls[0].id == "1");
  CHECK(chat->messages[1].tool_calls[0].arguments == "{\"x\": 1}");
  CHECK(chat->messages[1].tool_calls[1].arguments == "{}");
  CHECK(chat->messages[2].tool_call_id == "1");
  CHECK(boost::json::parse(chat->tools) == boost::json::parse(absl::StrCat("[", kTool, "]")));
  CHECK(chat->documents == R"([{"text":"x"}])");
  CHECK(chat->template_kwargs == R"({"enable_thinking":true})");
  CHECK(chat->reasoning_effort == "low");
  CHECK(chat->continue_final_message);
  CHECK_FALSE(chat->add_generation_prompt);
  CHECK(choice.calls == PartsSpec::Calls::kRequired);
  CHECK_FALSE(choice.parallel_calls);
}

}  // namespace
}  // namespace weft::router
