// A conversation with a server: asks, makes room, prints what comes, keeps what was said. What a
// user types around it is the session's (session.h). Main thread.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/launcher/chat/answer.h"
#include "deploy/launcher/chat/answer_printer.h"
#include "deploy/launcher/chat/conversation.h"
#include "deploy/launcher/chat/server.h"
#include "deploy/launcher/chat/settings.h"
#include "deploy/launcher/chat/stats.h"
#include "deploy/launcher/chat/stop.h"

namespace weft::launcher {

class Talk {
 public:
  // Takes a sentence for the user, safe for a terminal.
  using Note = std::function<void(absl::string_view)>;

  // `server` and `stop` outlive it. `facts` are those of the server now.
  Talk(ChatServer& server, ModelFacts facts, AnswerLimits limits, AnswerForm form, Stop& stop,
       Note note);

  // Sends `question` and prints the answer. Both stay in the conversation once something came, also
  // when it was stopped or broke off; the status says why it broke off.
  absl::Status Ask(absl::string_view question);
  // Asks the last question again, also one that got no answer. NOT_FOUND when there is none.
  absl::Status Retry();
  // FAILED_PRECONDITION: too long, or no UTF-8.
  static absl::Status CheckMessage(absl::string_view message);

  Conversation& conversation() { return conversation_; }
  Settings& settings() { return settings_; }
  Stats& stats() { return stats_; }
  const ModelFacts& facts() const { return facts_; }
  // How the last answer ended.
  Answer::End end() const { return end_; }

 private:
  void RefreshFacts();
  absl::Status FillRoom(AnswerRequest* request);
  absl::Status Keep(absl::string_view question, const Answer& answer);

  ChatServer& server_;
  ModelFacts facts_;
  const AnswerLimits limits_;
  const AnswerForm form_;
  Stop& stop_;
  const Note note_;
  Conversation conversation_;
  Settings settings_;
  Stats stats_;
  // The last question when it got no answer.
  std::string unanswered_;
  Answer::End end_ = Answer::End::kWhole;
};

}  // namespace weft::launcher
