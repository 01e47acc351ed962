#include "router/text/chat_traits.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft::router {
namespace {

using NoContent = TemplateTraits::NoContent;

constexpr absl::string_view kFirst = "Wexford";
constexpr absl::string_view kSecond = "Yarmouth";
constexpr absl::string_view kKey = "harbour_name";

ChatMessage Message(absl::string_view role, absl::string_view content) {
  return ChatMessage(std::string(role), std::string(content));
}

size_t Count(absl::string_view text, absl::string_view word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != absl::string_view::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

// True when the text holds the key as JSON does; false when it holds it otherwise; nothing when it
// is not there.
std::optional<bool> ShowsJsonKey(absl::string_view text) {
  if (absl::StrContains(text, absl::StrCat("'", kKey, "'"))) return false;
  if (absl::StrContains(text, kKey)) return true;
  return std::nullopt;
}

// The identifier has nine letters, which some templates insist on.
ChatPrompt Calling() {
  ChatPrompt prompt;
  ChatMessage call = Message("assistant", "");
  call.no_content = true;
  call.tool_calls = {{"call00001", "find_harbour", absl::StrCat("{\"", kKey, "\": \"Hook\"}")}};
  prompt.messages = {Message("user", "Where?"), std::move(call)};
  return prompt;
}

void FindContent(const TraitsRenderer& render, TemplateTraits* traits, bool* ended) {
  ChatPrompt prompt;
  prompt.messages = {Message("user", kFirst)};
  TemplateTraits text_alone = *traits;
  const absl::StatusOr<std::string> text = render(prompt, text_alone, ended);
  if (*ended) return;
  const bool takes_text = text.ok() && absl::StrContains(*text, kFirst);
  prompt.messages[0].content.clear();
  prompt.messages[0].content_parts = {std::string(kFirst), std::string(kSecond)};
  TemplateTraits parts_too = *traits;
  parts_too.part_content = true;
  const absl::StatusOr<std::string> parts = render(prompt, parts_too, ended);
  if (*ended) return;
  // A template that knows no parts prints the list as it stands.
  const bool takes_parts = parts.ok() && absl::StrContains(*parts, kFirst) &&
                           absl::StrContains(*parts, kSecond) &&
                           Count(*parts, "type") <= Count(text.value_or(""), "type");
  traits->part_content = takes_parts;
  traits->text_content = takes_text || !takes_parts;
}

void FindCalls(const TraitsRenderer& render, TemplateTraits* traits, bool* ended) {
  const ChatPrompt prompt = Calling();
  std::optional<TemplateTraits> served;
  for (const NoContent no_content :
       {NoContent::kLeftOut, NoContent::kNull, NoContent::kEmptyText}) {
    for (const bool text_arguments : {false, true}) {
      TemplateTraits tried = *traits;
      tried.no_content = no_content;
      tried.text_arguments = text_arguments;
      const absl::StatusOr<std::string> text = render(prompt, tried, ended);
      if (*ended) return;
      if (!text.ok()) continue;
      if (ShowsJsonKey(*text).value_or(false)) {
        *traits = tried;
        return;
      }
      if (!served.has_value()) served = tried;
    }
  }
  // The template shows no calls, or none as JSON.
  if (served.has_value()) *traits = *served;
}

}  // namespace

void FindTraits(const TraitsRenderer& render, TemplateTraits* traits) {
  bool ended = false;
  FindContent(render, traits, &ended);
  if (!ended) FindCalls(render, traits, &ended);
}

std::string Describe(const TemplateTraits& traits) {
  std::vector<absl::string_view> words;
  if (!traits.text_content) words.push_back("content as a list of parts");
  if (traits.no_content == NoContent::kNull) words.push_back("a content of null");
  if (traits.no_content == NoContent::kEmptyText) words.push_back("a content always");
  if (traits.text_arguments) words.push_back("arguments of calls as JSON text");
  return absl::StrJoin(words, ", ");
}

}  // namespace weft::router
