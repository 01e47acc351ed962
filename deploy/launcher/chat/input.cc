#include "deploy/launcher/chat/input.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/near_name.h"
#include "deploy/launcher/chat/settings.h"

namespace weft::launcher {
namespace {

using Kind = Input::Kind;

constexpr absl::string_view kQuotes = "\"\"\"";

enum class Words { kNone, kSome, kNeeded };

struct CommandRow {
  const char* name;
  Kind kind;
  Words words;
  // As it is typed, with what follows it, and what it does.
  const char* usage;
  const char* help;
};

constexpr CommandRow kCommands[] = {
    {"/set", Kind::kSet, Words::kSome, "/set [NAME [VALUE]]",
     "how answers are drawn: shows it or sets it"},
    {"/system", Kind::kSystem, Words::kSome, "/system [TEXT]",
     "the system message: shows it or sets it (-: none)"},
    {"/retry", Kind::kRetry, Words::kNone, "/retry", "the last answer once more"},
    {"/undo", Kind::kUndo, Words::kNone, "/undo", "takes the last question and its answer back"},
    {"/clear", Kind::kClear, Words::kNone, "/clear", "begins a new conversation"},
    {"/stats", Kind::kStats, Words::kNone, "/stats", "tokens, times, cache, and what is free"},
    {"/save", Kind::kSave, Words::kNeeded, "/save FILE",
     "writes the conversation: JSON, or FILE.md: Markdown"},
    {"/load", Kind::kLoad, Words::kNeeded, "/load FILE", "goes on with one that was saved as JSON"},
    {"/help", Kind::kHelp, Words::kNone, "/help", "this"},
    {"/exit", Kind::kExit, Words::kNone, "/exit", "ends, as Ctrl-D does; /quit too"},
    {"/quit", Kind::kExit, Words::kNone, "", ""},
};

absl::StatusOr<Input> ParseCommand(absl::string_view typed) {
  const absl::string_view name = typed.substr(0, typed.find_first_of(" \t\n"));
  const absl::string_view rest = absl::StripAsciiWhitespace(typed.substr(name.size()));
  std::vector<std::string> names;
  for (const CommandRow& row : kCommands) {
    names.emplace_back(row.name);
    if (name != row.name) continue;
    if (row.words == Words::kNone && !rest.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " takes nothing behind it"));
    }
    if (row.words == Words::kNeeded && rest.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("expected ", row.usage));
    }
    return Input{row.kind, std::string(rest)};
  }
  const std::string near = NearName(name, names);
  return absl::InvalidArgumentError(absl::StrCat("unknown command ", name,
                                                 near.empty() ? "" : absl::StrCat(" (", near, "?)"),
                                                 "; /help lists them, // begins a message"));
}

size_t CountQuotes(absl::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(kQuotes); at != absl::string_view::npos;
       at = text.find(kQuotes, at + kQuotes.size())) {
    ++count;
  }
  return count;
}

}  // namespace

bool IsCompleteInput(absl::string_view typed) {
  return !absl::StartsWith(typed, kQuotes) || CountQuotes(typed) % 2 == 0;
}

absl::StatusOr<Input> ParseInput(absl::string_view typed) {
  absl::string_view text = absl::StripTrailingAsciiWhitespace(typed);
  if (absl::StripAsciiWhitespace(text).empty()) return Input{};
  if (absl::StartsWith(text, kQuotes) && absl::EndsWith(text, kQuotes) && CountQuotes(text) == 2) {
    text = text.substr(kQuotes.size(), text.size() - 2 * kQuotes.size());
    absl::ConsumePrefix(&text, "\n");
    absl::ConsumeSuffix(&text, "\n");
    if (absl::StripAsciiWhitespace(text).empty()) return Input{};
    return Input{Kind::kMessage, std::string(text)};
  }
  if (absl::ConsumePrefix(&text, "//")) {
    return Input{Kind::kMessage, absl::StrCat("/", text)};
  }
  if (absl::StartsWith(text, "/")) return ParseCommand(text);
  return Input{Kind::kMessage, std::string(text)};
}

std::string HelpText() {
  std::string help;
  for (const CommandRow& row : kCommands) {
    if (row.help[0] != '\0') absl::StrAppendFormat(&help, "  %-20s %s\n", row.usage, row.help);
  }
  absl::StrAppend(
      &help,
      "  //...                a message that begins with a slash\n"
      "Enter sends; Alt-Enter or Ctrl-J is a line break, as is Enter between two \"\"\"."
      "\nA paste is one message. Up and Ctrl-R find earlier messages. Ctrl-C stops an"
      "\nanswer (what came stays) or clears the line; Ctrl-D ends.\n");
  return help;
}

std::vector<std::string> CompletedWords() {
  std::vector<std::string> words;
  for (const CommandRow& row : kCommands) words.emplace_back(row.name);
  for (const Settings::Info& info : Settings::All()) {
    words.push_back(absl::StrCat("/set ", info.name));
  }
  return words;
}

}  // namespace weft::launcher
