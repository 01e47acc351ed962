#include "deploy/launcher/chat/conversation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "common/check.h"

namespace weft::launcher {
namespace {

constexpr char kUser[] = "user";
constexpr char kAssistant[] = "assistant";
constexpr char kSystem[] = "system";
// As many as a chat request may have.
constexpr size_t kMessagesMax = 1024;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("is no conversation as /save writes it: ", what));
}

// The string member `name` of `object`; null when there is none.
const boost::json::string* StringOf(const boost::json::object& object, const char* name) {
  const boost::json::value* const value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_string();
}

}  // namespace

void Conversation::Ask(absl::string_view question) {
  WEFT_CHECK(turns_.size() % 2 == 0);
  turns_.push_back({kUser, std::string(question)});
}

void Conversation::Answer(absl::string_view answer) {
  WEFT_CHECK(turns_.size() % 2 == 1);
  turns_.push_back({kAssistant, std::string(answer)});
}

void Conversation::Unask() {
  WEFT_CHECK(turns_.size() % 2 == 1);
  turns_.pop_back();
}

absl::optional<std::string> Conversation::Undo() {
  WEFT_CHECK(turns_.size() % 2 == 0);
  if (turns_.empty()) return absl::nullopt;
  turns_.pop_back();
  std::string question = std::move(turns_.back().content);
  turns_.pop_back();
  // There is room for older ones again.
  first_sent_ = 0;
  return question;
}

void Conversation::Clear() {
  turns_.clear();
  first_sent_ = 0;
}

std::vector<ChatTurn> Conversation::ToSend() const {
  std::vector<ChatTurn> sent;
  if (!system_.empty()) sent.push_back({kSystem, system_});
  sent.insert(sent.end(), turns_.begin() + static_cast<std::ptrdiff_t>(first_sent_), turns_.end());
  return sent;
}

bool Conversation::DropOldest() {
  if (first_sent_ + 2 >= turns_.size()) return false;
  first_sent_ += 2;
  return true;
}

std::string Conversation::ToJson(absl::string_view model) const {
  boost::json::array messages;
  const auto add = [&messages](const std::string& role, const std::string& content) {
    messages.push_back(boost::json::object{{"role", role}, {"content", content}});
  };
  if (!system_.empty()) add(kSystem, system_);
  for (const ChatTurn& turn : turns_) add(turn.role, turn.content);
  const boost::json::object whole = {{"model", std::string(model)},
                                     {"messages", std::move(messages)}};
  return absl::StrCat(boost::json::serialize(whole), "\n");
}

std::string Conversation::ToMarkdown() const {
  std::string text;
  if (!system_.empty()) absl::StrAppend(&text, "## System\n\n", system_, "\n\n");
  for (const ChatTurn& turn : turns_) {
    absl::StrAppend(&text, turn.role == kUser ? "## User" : "## Assistant", "\n\n", turn.content,
                    "\n\n");
  }
  return text;
}

absl::Status Conversation::FromJson(absl::string_view json) {
  boost::system::error_code error;
  const boost::json::value whole = boost::json::parse({json.data(), json.size()}, error);
  if (error) return Bad("no JSON");
  const boost::json::value* const messages =
      whole.is_object() ? whole.as_object().if_contains("messages") : nullptr;
  if (messages == nullptr || !messages->is_array()) return Bad("no list \"messages\"");
  if (messages->as_array().size() > kMessagesMax) {
    return Bad(absl::StrCat("more than ", kMessagesMax, " messages"));
  }
  Conversation read;
  for (const boost::json::value& message : messages->as_array()) {
    const boost::json::string* const role =
        message.is_object() ? StringOf(message.as_object(), "role") : nullptr;
    const boost::json::string* const content =
        message.is_object() ? StringOf(message.as_object(), "content") : nullptr;
    if (role == nullptr || content == nullptr) return Bad("a message without role or content");
    if (*role == kSystem && read.turns_.empty() && read.system_.empty()) {
      read.system_ = std::string(content->data(), content->size());
      continue;
    }
    if (*role != (read.turns_.size() % 2 == 0 ? kUser : kAssistant)) {
      return Bad("user and assistant do not take turns");
    }
    read.turns_.push_back(
        {std::string(role->data(), role->size()), std::string(content->data(), content->size())});
  }
  if (read.turns_.size() % 2 != 0) return Bad("the last question has no answer");
  *this = std::move(read);
  return absl::OkStatus();
}

}  // namespace weft::launcher
