// What is wrong with a conversation is refused with the path of the field, over HTTP and gRPC.

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "router/doors/grpc/chat.h"
#include "router/errors.h"
#include "tests/router/doors/field_bodies.h"

namespace weft::router {
namespace {

struct Wrong {
  const char* field;
  // Of one message, or of the list of them.
  const char* json;
};

std::string Call(absl::string_view call) {
  return absl::StrCat(R"([{"role":"assistant","tool_calls":[)", call, "]}]");
}

TEST_CASE("Messages are checked one by one", "[router][fields]") {
  DoorsFixture fixture;
  const auto refused = [&](const std::string& name, const std::string& messages) {
    CheckRefused(fixture, Body::kChat, name, absl::StrCat("{\"messages\":", messages, "}"));
  };
  CheckRefused(fixture, Body::kChat, "messages", "{}");
  constexpr Wrong kLists[] = {
      {"messages", "\"x\""},
      {"messages", "[]"},
      {"messages[0]", "[5]"},
      {"messages[1].role", R"([{"role":"user","content":"x"},{"role":"king","content":"x"}])"},
      {"messages[0].content[1].type",
       R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}])"},
  };
  for (const Wrong& wrong : kLists) refused(wrong.field, wrong.json);
  constexpr Wrong kMessages[] = {
      {"role", R"({"content":"x"})"},
      {"role", R"({"role":5,"content":"x"})"},
      {"role", R"({"role":"function","content":"x","name":"f"})"},
      {"role", R"({"role":"","content":"x"})"},
      {"content", R"({"role":"user"})"},
      {"content", R"({"role":"user","content":null})"},
      {"content", R"({"role":"user","content":5})"},
      {"content", R"({"role":"assistant"})"},
      {"content", R"({"role":"assistant","tool_calls":[]})"},
      {"content", R"({"role":"tool","tool_call_id":"1"})"},
      {"content[0]", R"({"role":"user","content":["x"]})"},
      {"content[0].text", R"({"role":"user","content":[{"type":"text"}]})"},
      {"content[0].text", R"({"role":"user","content":[{"type":"text","text":1}]})"},
      {"content[0].type", R"({"role":"assistant","content":[{"type":"refusal","refusal":"x"}]})"},
      {"name", R"({"role":"user","content":"x","name":5})"},
      {"refusal", R"({"role":"assistant","content":"x","refusal":"no"})"},
      {"audio", R"({"role":"assistant","content":"x","audio":{"id":"a"}})"},
      {"function_call", R"({"role":"assistant","content":"x","function_call":{"name":"f"}})"},
      {"annotations", R"({"role":"assistant","content":"x","annotations":[1]})"},
      {"prefix", R"({"role":"assistant","content":"x","prefix":true})"},
      {"tools", R"({"role":"system","content":"x","tools":[{}]})"},
      {"reasoning",
       R"({"role":"assistant","content":"x","reasoning":"a","reasoning_content":"b"})"},
      {"reasoning_content", R"({"role":"user","content":"x","reasoning_content":"b"})"},
      {"reasoning_content", R"({"role":"assistant","content":"x","reasoning_content":1})"},
      {"tool_call_id", R"({"role":"user","content":"x","tool_call_id":"1"})"},
      {"tool_call_id", R"({"role":"tool","content":"x","tool_call_id":1})"},
      {"tool_calls", R"({"role":"assistant","content":"x","tool_calls":{}})"},
      {"tool_calls", R"({"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]})"},
  };
  for (const Wrong& wrong : kMessages) {
    refused(absl::StrCat("messages[0].", wrong.field), absl::StrCat("[", wrong.json, "]"));
  }
  refused("messages[0].name", absl::StrCat(R"([{"role":"user","content":"x","name":")",
                                           std::string(kToolNameBytesMax + 1, 'n'), "\"}]"));
  refused("messages[0].tool_call_id",
          absl::StrCat(R"([{"role":"tool","content":"x","tool_call_id":")",
                       std::string(kToolCallIdBytesMax + 1, 'n'), "\"}]"));
  std::string many = "[", parts = R"([{"role":"user","content":[)";
  for (size_t i = 0; i <= kChatMessagesMax; ++i) {
    absl::StrAppend(&many, i ? "," : "", R"({"role":"user","content":"x"})");
    absl::StrAppend(&parts, i ? "," : "", R"({"type":"text","text":"x"})");
  }
  refused("messages", many + "]");
  refused("messages[0].content", parts + "]}]");
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Calls of tools are checked with their path", "[router][fields]") {
  DoorsFixture fixture;
  constexpr Wrong kCalls[] = {
      {"", "5"},
      {".function", "{}"},
      {".function", R"({"function":"f"})"},
      {".type", R"({"type":"custom","function":{"name":"f"}})"},
      {".id", R"({"id":5,"function":{"name":"f"}})"},
      {".function.name", R"({"function":{}})"},
      {".function.name", R"({"function":{"name":""}})"},
      {".function.name", R"({"function":{"name":"a b"}})"},
      {".function.name", R"({"function":{"name":"<|im_end|>"}})"},
      {".function.arguments", R"({"function":{"name":"f","arguments":"{"}})"},
      {".function.arguments", R"({"function":{"name":"f","arguments":"[1]"}})"},
      {".function.arguments", R"({"function":{"name":"f","arguments":"\"x\""}})"},
      {".function.arguments", R"({"function":{"name":"f","arguments":"{\"x\":1} y"}})"},
      {".function.arguments", R"({"function":{"name":"f","arguments":[1]}})"},
      {".function.arguments", R"({"function":{"name":"f","arguments":5}})"},
  };
  for (const Wrong& wrong : kCalls) {
    CheckRefused(fixture, Body::kChat, absl::StrCat("messages[0].tool_calls[0]", wrong.field),
                 absl::StrCat("{\"messages\":", Call(wrong.json), "}"));
  }
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "[";
  CheckRefused(fixture, Body::kChat, "messages[0].tool_calls[1].function.arguments",
               absl::StrCat("{\"messages\":",
                            Call(absl::StrCat(R"({"function":{"name":"f"}},)",
                                              R"({"function":{"name":"f","arguments":"{\"a\":)",
                                              deep, "\"}}")),
                            "}"));
  std::string many;
  for (size_t i = 0; i <= kToolCallsMax; ++i) {
    absl::StrAppend(&many, i ? "," : "", R"({"function":{"name":"f"}})");
  }
  CheckRefused(fixture, Body::kChat, "messages[0].tool_calls",
               absl::StrCat("{\"messages\":", Call(many), "}"));
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("What a template is given beside messages is checked", "[router][fields]") {
  DoorsFixture fixture;
  constexpr Wrong kFields[] = {
      {"tools", R"("tools":{})"},
      {"tools[0]", R"("tools":[5])"},
      {"tools[0].type", R"("tools":[{"function":{"name":"f"}}])"},
      {"tools[0].type", R"("tools":[{"type":"custom","custom":{}}])"},
      {"tools[0].function", R"("tools":[{"type":"function"}])"},
      {"tools[0].function", R"("tools":[{"type":"function","function":[]}])"},
      {"tools[0].function.name", R"("tools":[{"type":"function","function":{}}])"},
      {"tools[0].function.name", R"("tools":[{"type":"function","function":{"name":5}}])"},
      {"tools[0].function.name", R"("tools":[{"type":"function","function":{"name":"é"}}])"},
      {"tools[0].function.description",
       R"("tools":[{"type":"function","function":{"name":"f","description":1}}])"},
      {"tools[0].function.parameters",
       R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"},
      {"tools[0].function.strict",
       R"("tools":[{"type":"function","function":{"name":"f","strict":1}}])"},
      {"tools[1].function.name", R"("tools":[{"type":"function","function":{"name":"f"}},)"
                                 R"({"type":"function","function":{"name":"f"}}])"},
      {"tool_choice", R"("tool_choice":"required")"},
      {"tool_choice", R"("tool_choice":{"type":"function","function":{"name":"f"}})"},
      {"documents", R"("documents":{})"},
      {"documents[1]", R"("documents":[{},"x"])"},
      {"chat_template_kwargs", R"("chat_template_kwargs":[])"},
      {"chat_template_kwargs", R"("chat_template_kwargs":{"a b":1})"},
      {"chat_template_kwargs", R"("chat_template_kwargs":{"":1})"},
      {"chat_template_kwargs", R"("chat_template_kwargs":{"1a":1})"},
      {"chat_template_kwargs.messages", R"("chat_template_kwargs":{"messages":[]})"},
      {"chat_template_kwargs.tools", R"("chat_template_kwargs":{"tools":[]})"},
      {"chat_template_kwargs.documents", R"("chat_template_kwargs":{"documents":[]})"},
      {"chat_template_kwargs.bos_token", R"("chat_template_kwargs":{"bos_token":"x"})"},
      {"chat_template_kwargs.eos_token", R"("chat_template_kwargs":{"eos_token":"x"})"},
      {"chat_template_kwargs.raise_exception", R"("chat_template_kwargs":{"raise_exception":0})"},
      {"chat_template_kwargs.add_generation_prompt",
       R"("chat_template_kwargs":{"add_generation_prompt":true})"},
      {"chat_template", R"("chat_template":"{{ 1 }}")"},
      {"reasoning_effort", R"("reasoning_effort":"heroic")"},
      {"reasoning_effort", R"("reasoning_effort":3)"},
      {"reasoning_effort",
       R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"low"})"},
      {"continue_final_message", R"("continue_final_message":1)"},
      {"continue_final_message", R"("continue_final_message":true,"add_generation_prompt":true)"},
  };
  for (const Wrong& wrong : kFields) {
    CheckRefused(fixture, Body::kChat, wrong.field, With(Body::kChat, wrong.json));
  }
  std::string tools, documents, kwargs;
  for (size_t i = 0; i <= kDocumentsMax; ++i) absl::StrAppend(&documents, i ? "," : "", "{}");
  for (size_t i = 0; i <= kToolsMax; ++i) {
    absl::StrAppend(&tools, i ? "," : "", R"({"type":"function","function":{"name":"f)", i, "\"}}");
    absl::StrAppend(&kwargs, i ? "," : "", "\"k", i, "\":1");
  }
  CheckRefused(fixture, Body::kChat, "tools", With(Body::kChat, "\"tools\":[" + tools + "]"));
  CheckRefused(fixture, Body::kChat, "documents",
               With(Body::kChat, "\"documents\":[" + documents + "]"));
  CheckRefused(fixture, Body::kChat, "chat_template_kwargs",
               With(Body::kChat, "\"chat_template_kwargs\":{" + kwargs + "}"));
  CheckRefused(fixture, Body::kChat, "continue_final_message",
               R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}],)"
               R"("continue_final_message":true})");
  CHECK(fixture.intake.request_count() == 0);
}

// -- gRPC ----------------------------------------------------------------------------------------

TEST_CASE("A gRPC conversation is refused with the path of its field", "[router][fields]") {
  using Change = std::function<void(weft::v1::ChatPrompt*)>;
  const std::string long_id(kToolCallIdBytesMax + 1, 'x');
  const std::pair<const char*, Change> cases[] = {
      {"chat.messages", [](auto* p) { p->clear_messages(); }},
      {"chat.messages[0].role", [](auto* p) { p->mutable_messages(0)->clear_role(); }},
      {"chat.messages[0].content_parts",
       [](auto* p) { p->mutable_messages(0)->add_content_parts("x"); }},
      {"chat.messages[0].name",
       [&](auto* p) { p->mutable_messages(0)->set_name(std::string(65, 'n')); }},
      {"chat.messages[0].tool_call_id",
       [](auto* p) { p->mutable_messages(0)->set_tool_call_id("1"); }},
      {"chat.messages[1].tool_call_id",
       [&](auto* p) { p->mutable_messages(1)->set_tool_call_id(long_id); }},
      {"chat.messages[0].reasoning_content",
       [](auto* p) { p->mutable_messages(0)->set_reasoning_content("1"); }},
      {"chat.messages[0].tool_calls[0].name",
       [](auto* p) { p->mutable_messages(0)->add_tool_calls(); }},
      {"chat.messages[0].tool_calls[0].id",
       [&](auto* p) { p->mutable_messages(0)->add_tool_calls()->set_id(long_id); }},
      {"chat.messages[0].tool_calls",
       [](auto* p) { p->mutable_messages(0)->add_tool_calls()->set_name("f"); }},
      {"chat.messages[0].tool_calls[0].arguments",
       [](auto* p) {
         auto* call = p->mutable_messages(0)->add_tool_calls();
         call->set_name("f");
         call->set_arguments("[]");
       }},
      {"chat.tools[0]", [](auto* p) { p->add_tools("{"); }},
      {"chat.tools[0].type", [](auto* p) { p->add_tools("{}"); }},
      {"chat.documents[1]",
       [](auto* p) {
         p->add_documents("{}");
         p->add_documents("5");
       }},
      {"chat.chat_template_kwargs", [](auto* p) { p->set_chat_template_kwargs("5"); }},
      {"chat.chat_template_kwargs.messages",
       [](auto* p) { p->set_chat_template_kwargs("{\"messages\":[]}"); }},
      {"chat.reasoning_effort", [](auto* p) { p->set_reasoning_effort("x"); }},
      {"chat.continue_final_message",
       [](auto* p) {
         p->set_continue_final_message(true);
         p->set_add_generation_prompt(true);
       }},
  };
  for (const auto& [field, change] : cases) {
    weft::v1::ChatPrompt prompt;
    weft::v1::ChatMessage* message = prompt.add_messages();
    message->set_role("user");
    message->set_content("x");
    message = prompt.add_messages();
    message->set_role("tool");
    message->set_content("x");
    change(&prompt);
    ToolChoice choice;
    const auto chat = ReadChat(&prompt, &choice);
    INFO(field << ": " << chat.status().ToString());
    CHECK(chat.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(ErrorField(chat.status()) == field);
  }
}

}  // namespace
}  // namespace weft::router
