// Which typed text is a command, a message, or neither.

#include "deploy/launcher/chat/input.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

using Kind = Input::Kind;

Input Parsed(absl::string_view typed) {
  INFO(std::string(typed));
  const absl::StatusOr<Input> input = ParseInput(typed);
  REQUIRE(input.ok());
  return *input;
}

void CheckMessage(absl::string_view typed, absl::string_view message) {
  const Input input = Parsed(typed);
  CHECK(input.kind == Kind::kMessage);
  CHECK(input.text == message);
}

TEST_CASE("A text is a message, and two slashes begin one with a slash", "[chat]") {
  CheckMessage("hi", "hi");
  CheckMessage("  two\nlines \n", "  two\nlines");
  CheckMessage("//etc/hosts is a file", "/etc/hosts is a file");
  CheckMessage("a /help b", "a /help b");
  CHECK(Parsed(" \n\t").kind == Kind::kNothing);
}

TEST_CASE("Text between quotes of three is a message as it stands", "[chat]") {
  CheckMessage("\"\"\"\n/help\n  a\n\"\"\"", "/help\n  a");
  CheckMessage("\"\"\"a\"\"\"", "a");
  CHECK(Parsed("\"\"\"\n\"\"\"").kind == Kind::kNothing);
  // A piece of code that has such quotes itself.
  const std::string code = "\"\"\"Doc.\"\"\"\nx = \"\"\"y\"\"\"";
  CheckMessage(code, code);
  CHECK(IsCompleteInput("hi"));
  CHECK(IsCompleteInput("x = \"\"\""));
  CHECK_FALSE(IsCompleteInput("\"\"\""));
  CHECK_FALSE(IsCompleteInput("\"\"\"\nx"));
  CHECK(IsCompleteInput("\"\"\"\nx\n\"\"\""));
}

TEST_CASE("Commands are known with what follows them", "[chat]") {
  CHECK(Parsed("/set").kind == Kind::kSet);
  CHECK(Parsed("/set temperature 0.5 ").text == "temperature 0.5");
  CHECK(Parsed("/system Be\nbrief.").text == "Be\nbrief.");
  CHECK(Parsed("/save a b.json").text == "a b.json");
  CHECK(Parsed("/load x").kind == Kind::kLoad);
  CHECK(Parsed("/stats").kind == Kind::kStats);
  CHECK(Parsed("/retry").kind == Kind::kRetry);
  CHECK(Parsed("/undo\n").kind == Kind::kUndo);
  CHECK(Parsed("/clear").kind == Kind::kClear);
  CHECK(Parsed("/help").kind == Kind::kHelp);
  CHECK(Parsed("/exit").kind == Kind::kExit);
  CHECK(Parsed("/quit").kind == Kind::kExit);
}

TEST_CASE("What looks like a command and is none is refused", "[chat]") {
  for (const auto& [typed, said] : {std::pair<const char*, const char*>{"/hlep", "(/help?)"},
                                    {"/nothing at all", "unknown command /nothing"},
                                    {"/usr/bin/ls", "// begins a message"},
                                    {"/", "unknown command /"},
                                    {"/help me", "/help takes nothing"},
                                    {"/save", "/save FILE"},
                                    {"/SET", "unknown"}}) {
    INFO(typed);
    const absl::StatusOr<Input> input = ParseInput(typed);
    CHECK(absl::IsInvalidArgument(input.status()));
    CHECK(absl::StrContains(input.status().message(), said));
  }
}

TEST_CASE("Help and Tab know every command", "[chat]") {
  for (const std::string& word : CompletedWords()) {
    CHECK(ParseInput(absl::StrCat(word, word == "/save" || word == "/load" ? " f" : "")).ok());
    const std::string name = word.substr(0, word.find(' '));
    if (name != "/quit") CHECK(absl::StrContains(HelpText(), absl::StrCat("  ", name)));
  }
}

}  // namespace
}  // namespace weft::launcher
