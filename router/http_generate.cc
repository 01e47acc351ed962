#include "router/http_generate.h"

#include <iterator>
#include <utility>

namespace weft::router {
namespace {

bool IsEnd(const ResponseEvent& event) {
  return std::holds_alternative<FinishedEvent>(event) || std::holds_alternative<FailedEvent>(event);
}

}  // namespace

std::shared_ptr<HttpExchange> GenerateExchange::Start(Intake& intake, GenerateInput input,
                                                      std::unique_ptr<ResponseFormatter> formatter,
                                                      HttpHeaders headers, HttpResponder& responder,
                                                      IoWaker& waker) {
  const std::shared_ptr<GenerateExchange> exchange(
      new GenerateExchange(std::move(formatter), std::move(headers), &responder, &waker));
  exchange->handle_ = intake.Submit(std::move(input), exchange);
  return exchange;
}

GenerateExchange::GenerateExchange(std::unique_ptr<ResponseFormatter> formatter,
                                   HttpHeaders headers, HttpResponder* responder, IoWaker* waker)
    : formatter_(std::move(formatter)),
      headers_(std::move(headers)),
      waker_(waker),
      responder_(responder) {}

Waker* GenerateExchange::Deliver(absl::Span<ResponseEvent> events) {
  absl::MutexLock lock(&mutex_);
  mailbox_.insert(mailbox_.end(), std::make_move_iterator(events.begin()),
                  std::make_move_iterator(events.end()));
  if (!dirty_) {
    dirty_ = true;
    waker_->Add(shared_from_this());
  }
  return waker_;
}

void GenerateExchange::OnWake() {
  // Unsent bytes are bounded by the connection, the mailbox by the request's max_tokens: a slow
  // reader makes the mailbox grow, and `dirty_` stays set until the connection can write again.
  if (responder_ != nullptr && !responder_->writable()) return;
  {
    absl::MutexLock lock(&mutex_);
    dirty_ = false;
    events_.swap(mailbox_);
  }
  // With the client gone only the end matters; it is the last event of its batch.
  const bool ended = responder_ != nullptr ? Format() : !events_.empty() && IsEnd(events_.back());
  events_.clear();
  if (responder_ != nullptr) Send(ended);
  if (ended) {
    responder_ = nullptr;
    handle_.reset();  // it holds this sink: the circle is broken here
  }
}

bool GenerateExchange::Format() {
  for (size_t i = 0; i < events_.size(); ++i) {
    if (const auto* started = std::get_if<StartedEvent>(&events_[i])) {
      formatter_->Started(*started);
    } else if (const auto* failure = std::get_if<FailedEvent>(&events_[i])) {
      if (begun_ || !out_.empty()) {
        formatter_->Fail(failure->status, &out_);
      } else {
        failed_ = failure->status;
      }
      return true;
    } else if (const auto* finished = std::get_if<FinishedEvent>(&events_[i])) {
      formatter_->Step(nullptr, finished, &out_);
      return true;
    } else {
      const FinishedEvent* last =
          i + 1 < events_.size() ? std::get_if<FinishedEvent>(&events_[i + 1]) : nullptr;
      formatter_->Step(&std::get<TokenEvent>(events_[i]), last, &out_);
      if (last != nullptr) return true;
    }
  }
  return false;
}

void GenerateExchange::Send(bool ended) {
  if (!failed_.ok()) {
    responder_->Reply(WithHeaders(formatter_->Error(failed_)));
    return;
  }
  if (!formatter_->streaming()) {
    if (ended) responder_->Reply(WithHeaders(formatter_->Reply()));
    return;
  }
  if (out_.empty()) return;
  if (!begun_) responder_->BeginStream(WithHeaders(formatter_->Reply()));
  begun_ = true;
  responder_->Write(out_);
  out_.clear();
  if (ended) {
    responder_->EndStream();
  } else {
    responder_->Flush();  // may find the client gone and call OnGone
  }
}

HttpReply GenerateExchange::WithHeaders(HttpReply reply) const {
  reply.headers.insert(reply.headers.end(), headers_.begin(), headers_.end());
  return reply;
}

void GenerateExchange::OnGone(CancelReason reason) {
  responder_ = nullptr;
  // Dropped here and not with the terminal event, which nobody may be there to take: at shutdown
  // this thread ends first.
  if (const std::shared_ptr<RequestHandle> handle = std::move(handle_)) handle->Cancel(reason);
}

}  // namespace weft::router
