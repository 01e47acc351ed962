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
#include "router/doors/grpc/generate_events.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

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
