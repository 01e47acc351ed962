// One generation on its way to an HTTP client: reads its answer's log on the connection's thread,
// formats and writes it; cancels when the client is gone. The formatter makes it a TGI or an OpenAI
// answer. Held by its connection as the exchange under way, and by the answer's writer as the sink.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "router/doors/access_log.h"
#include "router/doors/answers.h"
#include "router/doors/door_context.h"
#include "router/doors/http/json.h"
#include "router/doors/http/message.h"

namespace weft::router {

// Turns the answers to one request into bytes. One formatter serves either a stream or a whole
// answer. Called on the connection's thread, in order.
class ResponseFormatter {
 public:
  virtual ~ResponseFormatter() = default;

  virtual bool streaming() const = 0;
  // Before the first Step of the answer `index`, which counts through the choices of each prompt.
  virtual void Started(uint32_t /*index*/, const AnswerHead&) {}
  // A token, the end, or a token that is known to be the last: at least one is not null. A stream
  // appends its frames to *out; a whole answer collects. The end is one of a complete answer.
  virtual void Step(uint32_t index, const AnswerToken* token, const AnswerEnd* finished,
                    std::string* out) = 0;
  // Nothing has come for long: appends what says that the stream lives. A comment, unless the
  // stream has none.
  virtual void Silence(std::string* out);
  // A stream that has begun fails: appends the closing frames.
  virtual void Fail(const absl::Status& status, std::string* out) = 0;
  // Stream: status and headers, asked for with the first event. Whole: the answer, after the end.
  virtual HttpReply Reply() = 0;
  // Nothing has been sent and nothing will be but this.
  virtual HttpReply Error(const absl::Status& status) = 0;
};

// The members of a stream's first event from which its client can go on elsewhere: `resume`, to be
// given back with the ids that came, and `resumed` where the stream goes on with another.
void WriteResume(const AnswerHead& head, JsonWriter* json);

// What a door made of a body.
struct ReadGeneration {
  // One a prompt, at least one.
  std::vector<GenerateInput> inputs;
  // Answers to each.
  uint32_t choices = 1;
  std::unique_ptr<ResponseFormatter> formatter;
  // Go with whatever answer follows.
  HttpHeaders headers;
};
// From a request that a door has read: its prompts, how its answers are written, and the names of
// the fields that were ignored.
ReadGeneration MakeGeneration(std::vector<GenerateInput> inputs, uint32_t choices,
                              std::unique_ptr<ResponseFormatter> formatter,
                              const std::vector<std::string>& ignored);
// Reads a body, or makes the refusal. Any thread.
using GenerationReader = std::function<std::variant<ReadGeneration, HttpReply>(HttpRequest)>;

class GenerateExchange : public HttpExchange,
                         public AnswerSink,
                         public std::enable_shared_from_this<GenerateExchange> {
 public:
  // Reads `request` under `permit` and hands it in; a long body is read by a thread of text in.
  // Null when `responder` has had its reply. `refuse` words an error that comes before the body is
  // read. `doors` must outlive it.
  static std::shared_ptr<HttpExchange> Start(
      const DoorContext& doors, HttpRequest request, Admission::Permit permit,
      GenerationReader read, const std::function<HttpReply(const absl::Status&)>& refuse,
      HttpResponder& responder, IoWaker& waker);

  // The answer's writer.
  Waker* OnNews() override;

  // Connection's thread.
  void OnWake() override;
  void OnSilence() override;
  void OnGone(CancelReason reason) override;
  void Describe(AccessRecord* record) const override;
  bool LogLater(const AccessRecord& record) override;

  // The last that lets go is the connection, or the writer once the answer has its end: whichever
  // thread that is writes the line of a request that its client left.
  ~GenerateExchange() override;

 private:
  GenerateExchange(HttpResponder* responder, IoWaker* waker)
      : waker_(waker), responder_(responder), start_us_(MonotonicClock().NowUs()) {}

  // Reads the body and hands the request in. Returns the refusal, or nothing.
  std::optional<HttpReply> ReadAndSubmit(const DoorContext& doors, HttpRequest request,
                                         Admission::Permit permit, const GenerationReader& read);
  // Hands in each prompt with its choices, or none.
  absl::StatusOr<Answers> SubmitAll(const DoorContext& doors, ReadGeneration generation,
                                    const TenantRef& tenant, Admission::Permit permit);
  // Takes what the reading thread left; true when there is an answer to read.
  bool TakeAnswer();
  // Formats what was fetched; true when the request has ended.
  bool Format();
  // Sends what Format left in `out_`.
  void Send(bool ended);
  HttpReply WithHeaders(HttpReply reply) const;

  IoWaker* const waker_;

  // -- Connection's thread only
  // Null once the connection has nothing to do with this any more.
  HttpResponder* responder_;
  std::optional<Answers> answers_;
  std::unique_ptr<ResponseFormatter> formatter_;
  HttpHeaders headers_;
  std::string out_;
  // The client has its status line: from an answer's beginning, or before it in a long silence.
  bool begun_ = false;
  const int64_t start_us_;
  int64_t first_token_us_ = 0;
  // Of an early end.
  CancelReason ended_early_ = CancelReason::kNone;
  // Its line, which waits until the answer's end says how far it came.
  std::optional<AccessRecord> late_record_;
  // The route that it names: whoever holds this exchange last may outlive the table of routes.
  std::string late_route_;
  // The failure of a request that has sent nothing yet.
  absl::Status failed_;

  // OnWake is on its way.
  std::atomic<bool> dirty_{false};

  // -- What the reading thread hands over
  absl::Mutex mutex_;
  std::optional<Answers> new_answers_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ResponseFormatter> new_formatter_ ABSL_GUARDED_BY(mutex_);
  HttpHeaders new_headers_ ABSL_GUARDED_BY(mutex_);
  std::optional<HttpReply> refusal_ ABSL_GUARDED_BY(mutex_);
  // Why the client's leaving ends the request, if it left while the body was being read.
  CancelReason gone_ ABSL_GUARDED_BY(mutex_) = CancelReason::kNone;
};

}  // namespace weft::router
