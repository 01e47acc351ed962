// What of a conversation is sent, taken back, saved and loaded.

#include "deploy/launcher/chat/conversation.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

std::string Sent(const Conversation& conversation) {
  std::string all;
  for (const ChatTurn& turn : conversation.ToSend()) {
    absl::StrAppend(&all, turn.role.substr(0, 1), ":", turn.content, " ");
  }
  return all;
}

Conversation Of(int exchanges) {
  Conversation conversation;
  conversation.SetSystem("S");
  for (int i = 1; i <= exchanges; ++i) {
    conversation.Ask(absl::StrCat("q", i));
    conversation.Answer(absl::StrCat("a", i));
  }
  return conversation;
}

TEST_CASE("All is sent until the oldest exchanges are dropped", "[chat]") {
  Conversation conversation = Of(2);
  conversation.Ask("q3");
  CHECK(Sent(conversation) == "s:S u:q1 a:a1 u:q2 a:a2 u:q3 ");
  CHECK(conversation.DropOldest());
  CHECK(conversation.DropOldest());
  CHECK_FALSE(conversation.DropOldest());
  CHECK(Sent(conversation) == "s:S u:q3 ");
  CHECK(conversation.dropped() == 2);
  conversation.Unask();
  CHECK(conversation.exchanges() == 2);
}

TEST_CASE("An exchange is taken back with its question, and older ones have room again", "[chat]") {
  Conversation conversation = Of(3);
  CHECK(conversation.DropOldest());
  CHECK(conversation.Undo().value() == "q3");
  CHECK(Sent(conversation) == "s:S u:q1 a:a1 u:q2 a:a2 ");
  conversation.Clear();
  CHECK(Sent(conversation) == "s:S ");
  CHECK_FALSE(conversation.Undo().has_value());
}

TEST_CASE("A saved conversation is loaded as it was", "[chat]") {
  Conversation conversation = Of(2);
  CHECK(conversation.DropOldest());
  conversation.Ask("\"quotes\"\n\\ 日本");
  conversation.Answer("");
  Conversation loaded = Of(1);
  REQUIRE(loaded.FromJson(conversation.ToJson("m")).ok());
  // What was not sent any more is saved, too.
  CHECK(Sent(loaded) == "s:S u:q1 a:a1 u:q2 a:a2 u:\"quotes\"\n\\ 日本 a: ");
  CHECK(absl::StrContains(conversation.ToJson("m"), "\"model\":\"m\""));
  CHECK(absl::StartsWith(conversation.ToMarkdown(),
                         "## System\n\nS\n\n## User\n\nq1\n\n## Assistant"));
}

TEST_CASE("What is no saved conversation is refused and changes nothing", "[chat]") {
  for (const char* bad :
       {"", "{", "[]", "{}", R"({"messages":{}})", R"({"messages":[1]})",
        R"({"messages":[{"role":"user"}]})", R"({"messages":[{"role":7,"content":"x"}]})",
        R"({"messages":[{"role":"user","content":"x"}]})",
        R"({"messages":[{"role":"assistant","content":"x"}]})",
        R"({"messages":[{"role":"user","content":"x"},{"role":"user","content":"x"}]})",
        R"({"messages":[{"role":"user","content":"x"},{"role":"system","content":"x"}]})",
        R"({"messages":[{"role":"tool","content":"x"}]})"}) {
    INFO(bad);
    Conversation conversation = Of(1);
    CHECK(absl::IsInvalidArgument(conversation.FromJson(bad)));
    CHECK(Sent(conversation) == "s:S u:q1 a:a1 ");
  }
}

}  // namespace
}  // namespace weft::launcher
