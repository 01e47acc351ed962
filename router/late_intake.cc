#include "router/late_intake.h"

#include <utility>

#include "absl/time/time.h"
#include "router/errors.h"

namespace weft::router {
namespace {

absl::Status Starting() {
  return UnavailableError("LOADING", "the server is starting", absl::Seconds(1));
}

// A request that was refused on the spot.
class NoHandle : public RequestHandle {
 public:
  explicit NoHandle(std::string request_id) : request_id_(std::move(request_id)) {}
  void Cancel(CancelReason) override {}
  const std::string& request_id() const override { return request_id_; }

 private:
  const std::string request_id_;
};

}  // namespace

std::shared_ptr<RequestHandle> LateIntake::Submit(GenerateInput input,
                                                  std::shared_ptr<ResponseSink> sink) {
  if (Intake* intake = get()) return intake->Submit(std::move(input), std::move(sink));
  std::vector<ResponseEvent> events;
  events.push_back(FailedEvent{Starting()});
  if (Waker* waker = sink->Deliver(absl::MakeSpan(events))) waker->Wake();
  return std::make_shared<NoHandle>(std::move(input.request_id));
}

void LateIntake::Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                          absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) {
  if (Intake* intake = get()) {
    intake->Tokenize(std::move(prompt), add_special_tokens, std::move(done));
  } else {
    done(Starting());
  }
}

void LateIntake::Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                            absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  if (Intake* intake = get()) {
    intake->Detokenize(std::move(ids), skip_special_tokens, std::move(done));
  } else {
    done(Starting());
  }
}

bool LateIntake::Cancel(const std::string& request_id) {
  Intake* intake = get();
  return intake != nullptr && intake->Cancel(request_id);
}

ModelFacts LateIntake::Model() const {
  Intake* intake = get();
  return intake != nullptr ? intake->Model() : ModelFacts();
}

ServerStatus LateIntake::Status() const {
  if (Intake* intake = get()) return intake->Status();
  ServerStatus status;
  status.detail = "loading the tokenizer";
  return status;
}

}  // namespace weft::router
