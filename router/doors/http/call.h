// An answer that another thread makes in one piece: tokenising. The route hands the call out with a
// callback; the callback's reply is sent from the connection's thread, or dropped when the client
// has gone. Routes of such calls are added here, since all of them begin alike.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/entrance.h"
#include "router/doors/http/message.h"
#include "router/doors/http/router.h"

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

// Reads the body of a text call and hands it in under `permit`; the reply goes through `call`. Any
// thread.
using TextCallReader = void (*)(DoorContext* doors, const boost::json::object& body,
                                const std::string& request_id, Admission::Permit permit,
                                const std::shared_ptr<HttpCall>& call);

// POST `path`, with a key where keys are wanted: takes a permit and reads the body, a long one on a
// thread of text in. `refuse` words what is refused before `read` is asked. `doors` must outlive
// the router.
void AddTextRoute(DoorContext* doors, std::string path, TextCallReader read,
                  HttpReply (*refuse)(const absl::Status&), HttpRouter* router);

}  // namespace weft::router
