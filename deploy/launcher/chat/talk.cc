#include "deploy/launcher/chat/talk.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/utf8.h"
#include "deploy/launcher/chat/context.h"
#include "deploy/launcher/chat/terminal_text.h"

namespace weft::launcher {
namespace {

// What a server takes of one request, unless --body-bytes-max says otherwise.
constexpr size_t kMessageBytesMax = 4u << 20;

}  // namespace

Talk::Talk(ChatServer& server, ModelFacts facts, AnswerLimits limits, AnswerForm form, Stop& stop,
           Note note)
    : server_(server),
      facts_(std::move(facts)),
      limits_(limits),
      form_(form),
      stop_(stop),
      note_([note = std::move(note)](absl::string_view text) { note(ForTerminal(text)); }) {}

absl::Status Talk::CheckMessage(absl::string_view message) {
  if (message.size() > kMessageBytesMax) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the message has ", message.size(), " bytes; at most ", kMessageBytesMax, " can be sent"));
  }
  for (size_t at = 0; at < message.size();) {
    const size_t bytes = Utf8CharacterBytes(message.substr(at));
    if (bytes == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("the message is no UTF-8 text: byte ", at + 1, " begins no character"));
    }
    at += bytes;
  }
  return absl::OkStatus();
}

// The server may have been restarted with another model since the last question.
void Talk::RefreshFacts() {
  const absl::StatusOr<ModelFacts> now = server_.Facts(stop_);
  if (!now.ok()) return;
  if (now->name != facts_.name)
    note_(absl::StrCat("the server has another model now: ", now->name));
  facts_ = *now;
}

absl::Status Talk::FillRoom(AnswerRequest* request) {
  const uint32_t wanted = static_cast<uint32_t>(settings_.Integer("max_tokens").value_or(0));
  request->max_tokens = wanted;
  const absl::StatusOr<Room> room = MakeRoom(
      facts_.context_tokens, wanted,
      [this](const std::vector<ChatTurn>& turns) { return server_.CountTokens(turns, stop_); },
      &conversation_);
  // A server that is not there for the moment is waited for by the answer.
  if (absl::IsUnavailable(room.status()) || stop_.requested()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(room.status());
  if (room->dropped > 0) {
    note_(absl::StrCat("the context of ", facts_.context_tokens, " tokens is full: the oldest ",
                       conversation_.dropped(),
                       conversation_.dropped() == 1 ? " exchange is" : " exchanges are",
                       " no longer sent (/clear begins anew)"));
  }
  request->max_tokens = room->answer_tokens_max;
  return absl::OkStatus();
}

absl::Status Talk::Keep(absl::string_view question, const Answer& answer) {
  end_ = answer.end;
  const bool whole = answer.end == Answer::End::kWhole || answer.end == Answer::End::kLength;
  if (answer.text.empty() && !whole) {
    conversation_.Unask();
    unanswered_ = std::string(question);
  } else {
    conversation_.Answer(answer.text);
    stats_.Add(answer);
  }
  if (answer.end != Answer::End::kFailed) return absl::OkStatus();
  return absl::Status(answer.error.code(),
                      absl::StrCat(answer.error.message(),
                                   answer.text.empty() ? "" : "; the answer broke off here"));
}

absl::Status Talk::Ask(absl::string_view question) {
  WEFT_RETURN_IF_ERROR(CheckMessage(question));
  unanswered_.clear();
  stop_.Arm();
  const absl::Cleanup disarm = [this] { stop_.Disarm(); };
  RefreshFacts();
  conversation_.Ask(question);
  AnswerRequest request;
  if (absl::Status status = FillRoom(&request); !status.ok()) {
    conversation_.Unask();
    return status;
  }
  request.messages = conversation_.ToSend();
  request.settings = settings_;
  AnswerPrinter printer(form_);
  const Answer answer = ReceiveAnswer(
      server_, std::move(request), limits_, stop_,
      [&printer](absl::string_view text) { return printer.Add(text); },
      [this, &printer](absl::string_view text) {
        printer.BreakLine();
        note_(text);
      });
  if (!answer.text.empty()) printer.Finish();
  return Keep(question, answer);
}

absl::Status Talk::Retry() {
  std::string question = std::move(unanswered_);
  unanswered_.clear();
  if (question.empty()) {
    absl::optional<std::string> last = conversation_.Undo();
    if (!last) return absl::NotFoundError("there is no question to ask again");
    question = *std::move(last);
  }
  return Ask(question);
}

}  // namespace weft::launcher
