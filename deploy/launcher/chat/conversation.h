// The messages of a conversation: what was said, and what of it still goes to the server. Pure;
// main thread.
//
// An exchange is a question and its answer. When the context is full the oldest ones are left out
// of what is sent; they stay in what is saved.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft::launcher {

struct ChatTurn {
  // "system", "user" or "assistant".
  std::string role;
  std::string content;
};

class Conversation {
 public:
  // Empty = none.
  void SetSystem(absl::string_view text) { system_ = std::string(text); }
  const std::string& system() const { return system_; }

  void Ask(absl::string_view question);
  // Ends the exchange that Ask began.
  void Answer(absl::string_view answer);
  // Takes the question back that has no answer.
  void Unask();
  // Takes the last exchange back and returns its question; nothing when there is none.
  absl::optional<std::string> Undo();
  // Forgets all but the system message.
  void Clear();

  // System message first.
  std::vector<ChatTurn> ToSend() const;
  // Leaves the oldest exchange that is still sent out of it; false when only the last question is
  // left.
  bool DropOldest();
  size_t exchanges() const { return (turns_.size() + 1) / 2; }
  size_t dropped() const { return first_sent_ / 2; }

  std::string ToJson(absl::string_view model) const;
  std::string ToMarkdown() const;
  // Replaces this one by a saved one. INVALID_ARGUMENT says what is wrong with it; nothing is
  // changed then.
  absl::Status FromJson(absl::string_view json);

 private:
  std::string system_;
  // User and assistant by turns.
  std::vector<ChatTurn> turns_;
  size_t first_sent_ = 0;
};

}  // namespace weft::launcher
