// An answer that another thread makes in one piece: tokenising. The route hands the call out with a
// callback; the callback's reply is sent from the connection's thread, or dropped when the client
// has gone.

#pragma once

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/entrance.h"
#include "router/doors/http/message.h"

namespace weft::router {

class HttpCall : public HttpExchange, public std::enable_shared_from_this<HttpCall> {
 public:
  HttpCall(HttpResponder* responder, IoWaker* waker)
      : text_call_(std::make_shared<TextCall>()), waker_(waker), responder_(responder) {}

  // By which text in sees that the client has left.
  const std::shared_ptr<TextCall>& text_call() const { return text_call_; }

  // Any thread, once.
  void Done(HttpReply reply) {
    {
      absl::MutexLock lock(&mutex_);
      reply_ = std::move(reply);
    }
    waker_->Add(shared_from_this());
    waker_->Wake();
  }

  void OnWake() override {
    if (responder_ == nullptr) return;
    absl::MutexLock lock(&mutex_);
    std::exchange(responder_, nullptr)->Reply(std::move(reply_));
  }

  void OnGone(CancelReason) override {
    responder_ = nullptr;
    text_call_->Leave();
  }

 private:
  const std::shared_ptr<TextCall> text_call_;
  IoWaker* const waker_;
  HttpResponder* responder_;
  absl::Mutex mutex_;
  HttpReply reply_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
