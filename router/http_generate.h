// One generation on its way to an HTTP client: takes events from a text worker, formats them on the
// connection's thread and writes them; cancels when the client is gone. The formatter makes it a
// TGI or an OpenAI answer. Held by the engine as its sink and by the connection as its exchange.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/http/message.h"
#include "router/intake.h"

namespace weft::router {

// Turns the events of one request into bytes. One formatter serves either a stream or a whole
// answer. Called on the connection's thread, in order.
class ResponseFormatter {
 public:
  virtual ~ResponseFormatter() = default;

  virtual bool streaming() const = 0;
  virtual void Started(const StartedEvent&) {}
  // A token, the end, or a token that is known to be the last: at least one is not null. A stream
  // appends its frames to *out; a whole answer collects.
  virtual void Step(const TokenEvent* token, const FinishedEvent* finished, std::string* out) = 0;
  // A stream that has begun fails: appends the closing frames.
  virtual void Fail(const absl::Status& status, std::string* out) = 0;
  // Stream: status and headers, asked for with the first event. Whole: the answer, after the end.
  virtual HttpReply Reply() = 0;
  // Nothing has been sent and nothing will be but this.
  virtual HttpReply Error(const absl::Status& status) = 0;
};

class GenerateExchange : public HttpExchange,
                         public ResponseSink,
                         public std::enable_shared_from_this<GenerateExchange> {
 public:
  // Submits `input`. `headers` go with whatever answer follows.
  static std::shared_ptr<HttpExchange> Start(Intake& intake, GenerateInput input,
                                             std::unique_ptr<ResponseFormatter> formatter,
                                             HttpHeaders headers, HttpResponder& responder,
                                             IoWaker& waker);

  // Text worker.
  Waker* Deliver(absl::Span<ResponseEvent> events) override;

  // Connection's thread.
  void OnWake() override;
  void OnGone(CancelReason reason) override;

 private:
  GenerateExchange(std::unique_ptr<ResponseFormatter> formatter, HttpHeaders headers,
                   HttpResponder* responder, IoWaker* waker);

  // Formats `events_`; true when the request has ended.
  bool Format();
  // Sends what Format left in `out_`.
  void Send(bool ended);
  HttpReply WithHeaders(HttpReply reply) const;

  const std::unique_ptr<ResponseFormatter> formatter_;
  const HttpHeaders headers_;
  IoWaker* const waker_;

  // Connection's thread only. Null once the connection has nothing to do with this any more.
  HttpResponder* responder_;
  std::shared_ptr<RequestHandle> handle_;
  std::vector<ResponseEvent> events_;
  std::string out_;
  bool begun_ = false;
  // The failure of a request that has sent nothing yet.
  absl::Status failed_;

  absl::Mutex mutex_;
  std::vector<ResponseEvent> mailbox_ ABSL_GUARDED_BY(mutex_);
  // OnWake is on its way, or the connection will call it when it is writable.
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::router
