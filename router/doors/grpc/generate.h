// One Generate call: writes the events of its request, one message a token, and cancels the request
// when the stream is dropped. Beside what all calls hear (router/doors/grpc/call.h) it hears of its
// answer from the answer's writer (OnNews, Pump).

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "router/doors/answers.h"
#include "router/doors/entrance.h"
#include "router/doors/grpc/call.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

// The events of one request's answers as messages, the head with the first of them. One thread at a
// time.
class GenerateEvents {
 public:
  // `request` must outlive this; its prompt may have been freed.
  explicit GenerateEvents(const weft::v1::GenerateRequest* request) : request_(*request) {}

  // Reads the next token or end of `answers` into `response`; `ends_only` drops tokens. True when
  // there is something to write or `status` ends the request; *last with its last message.
  bool TakeNext(Answers* answers, bool ends_only, weft::v1::GenerateResponse* response, bool* last,
                absl::Status* status);
  // A token came.
  bool begun() const { return begun_; }

 private:
  void FillToken(uint32_t index, const AnswerToken& token,
                 weft::v1::GenerateResponse* response) const;
  void FillHead(const Answers& answers, const AnswerHead& head,
                weft::v1::GenerateResponse* response);

  const weft::v1::GenerateRequest& request_;
  bool head_sent_ = false;
  bool begun_ = false;
};

class GenerateCall : public GrpcCall, public AnswerSink {
 public:
  GenerateCall(const GrpcDoor& door, grpc::CallbackServerContext* context)
      : GrpcCall(door, context, "Generate") {}

  Waker* OnNews() override;
  // Writes the next message if none is being written.
  void Pump() override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;

 private:
  void OnMessage() override;
  void OnSlow() override { CancelRequest(CancelReason::kSlowReader); }
  void Describe(AccessRecord* record) override;

  // The request that the message is; an error for one that is none.
  absl::StatusOr<GenerateInput> Read();
  void Submit(GenerateInput input, Admission::Permit permit);
  void CancelRequest(CancelReason reason);
  // Reads the answers' next token or end into `response`. True when there is something to write or
  // `status` ends the call.
  bool TakeNext(weft::v1::GenerateResponse* response, bool* last, absl::Status* status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  weft::v1::GenerateRequest request_;
  GenerateEvents events_ ABSL_GUARDED_BY(mutex_){&request_};
  int64_t deadline_us_ ABSL_GUARDED_BY(mutex_) = 0;  // 0 = none
  std::optional<Answers> answers_ ABSL_GUARDED_BY(mutex_);
  int64_t first_token_us_ ABSL_GUARDED_BY(mutex_) = 0;
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  CancelReason cancel_reason_ ABSL_GUARDED_BY(mutex_) = CancelReason::kClientGone;
  grpc::ByteBuffer buffer_;  // being written
};

}  // namespace weft::router
