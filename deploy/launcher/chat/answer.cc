#include "deploy/launcher/chat/answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace weft::launcher {
namespace {

constexpr absl::Duration kPauseMax = absl::Seconds(2);
// Tries that bring no token, of an error that a broken connection may be reported as and a server's
// own failure, too.
constexpr int kDoubtfulTriesMax = 3;

enum class Kind { kFinal, kDoubtful, kPassing };

Kind KindOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:  // a stream that ended politely before its answer did
    case absl::StatusCode::kUnavailable:
      return Kind::kPassing;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return Kind::kDoubtful;
    default:
      return Kind::kFinal;
  }
}

class Receiver {
 public:
  Receiver(AnswerRequest request, const AnswerLimits& limits, Stop& stop,
           absl::FunctionRef<bool(absl::string_view)> on_text,
           absl::FunctionRef<void(absl::string_view)> on_note)
      : request_(std::move(request)),
        limits_(limits),
        stop_(stop),
        on_text_(on_text),
        on_note_(on_note),
        begin_(absl::Now()) {}

  Answer Run(ChatServer& server) {
    absl::Duration pause = limits_.pause;
    absl::Time give_up = absl::InfiniteFuture();
    int doubtful = 0;
    while (true) {
      const size_t before = had_.output_ids.size();
      const absl::Duration left = begin_ + limits_.answer - absl::Now();
      absl::Status status =
          server.Stream(request_, left, stop_, [this](const AnswerEvent& e) { return OnEvent(e); });
      if (finished_ || unread_ || stop_.requested()) return Result(absl::OkStatus());
      if (had_.output_ids.size() > before) {
        doubtful = 0;
        pause = limits_.pause;
        give_up = absl::InfiniteFuture();
      }
      const Kind kind = KindOf(status);
      if (status.ok()) status = absl::UnavailableError("the stream ended before the answer did");
      if (kind == Kind::kFinal || (kind == Kind::kDoubtful && ++doubtful >= kDoubtfulTriesMax)) {
        return Result(std::move(status));
      }
      if (begun_ && !may_resume_) return Result(std::move(status));
      if (give_up == absl::InfiniteFuture()) {
        give_up = absl::Now() + limits_.reconnect;
        NoteBreak(server, status);
      }
      if (absl::Now() + pause > give_up) return Result(std::move(status));
      if (stop_.WaitFor(pause)) return Result(absl::OkStatus());
      pause = std::min(2 * pause, kPauseMax);
      if (begun_) request_.resume = had_;
    }
  }

 private:
  bool OnEvent(const AnswerEvent& event) {
    if (event.begins) OnBegin(event);
    had_.output_ids.insert(had_.output_ids.end(), event.token_ids.begin(), event.token_ids.end());
    if (first_ == absl::InfiniteFuture() && !event.token_ids.empty()) first_ = absl::Now();
    answer_.text += event.text;
    if (event.finish != Finish::kNotYet) {
      finished_ = true;
      answer_.end = event.finish == Finish::kLength ? Answer::End::kLength : Answer::End::kWhole;
      answer_.output_tokens = event.output_tokens;
    }
    if (!event.text.empty() && !on_text_(event.text)) unread_ = true;
    return !unread_;
  }

  void OnBegin(const AnswerEvent& event) {
    if (!begun_) {
      answer_.prompt_tokens = event.prompt_tokens;
      answer_.cached_tokens = event.cached_tokens;
    } else if (event.inexact) {
      on_note_("the server is another one now: the rest may differ from what would have come");
    }
    begun_ = true;
    // Servers of other makes say nothing by which a stream could be resumed.
    may_resume_ = !event.fingerprint.empty();
    had_.seed = event.seed;
    had_.fingerprint = event.fingerprint;
  }

  void NoteBreak(ChatServer& server, const absl::Status& status) {
    on_note_(absl::StrCat(status.message(), "; trying ", server.address(), " again for ",
                          absl::FormatDuration(limits_.reconnect),
                          begun_ ? ", to go on where the answer broke off" : ""));
  }

  Answer Result(absl::Status status) {
    if (absl::IsDeadlineExceeded(status)) {
      status = absl::DeadlineExceededError(absl::StrCat(
          "the answer took longer than ", absl::FormatDuration(limits_.answer), " (--timeout-s)"));
    }
    answer_.error = std::move(status);
    if (!finished_) {
      answer_.output_tokens = static_cast<uint32_t>(had_.output_ids.size());
      answer_.end = unread_               ? Answer::End::kUnread
                    : !answer_.error.ok() ? Answer::End::kFailed
                                          : Answer::End::kStopped;
    }
    const absl::Time first = std::min(first_, absl::Now());
    answer_.to_first_token = first - begin_;
    answer_.after_first_token = absl::Now() - first;
    return std::move(answer_);
  }

  AnswerRequest request_;
  const AnswerLimits limits_;
  Stop& stop_;
  const absl::FunctionRef<bool(absl::string_view)> on_text_;
  const absl::FunctionRef<void(absl::string_view)> on_note_;
  const absl::Time begin_;
  absl::Time first_ = absl::InfiniteFuture();
  ResumePoint had_;
  Answer answer_;
  bool begun_ = false;
  bool may_resume_ = false;
  bool finished_ = false;
  bool unread_ = false;
};

}  // namespace

Answer ReceiveAnswer(ChatServer& server, AnswerRequest request, const AnswerLimits& limits,
                     Stop& stop, absl::FunctionRef<bool(absl::string_view)> on_text,
                     absl::FunctionRef<void(absl::string_view)> on_note) {
  return Receiver(std::move(request), limits, stop, on_text, on_note).Run(server);
}

}  // namespace weft::launcher
