// One GenerateBatch call: several requests, each read, let in, answered and ended by itself; their
// events come mixed, one message at a time. Dropping the stream cancels all of them. Threads as of
// GenerateCall.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "router/doors/answers.h"
#include "router/doors/entrance.h"
#include "router/doors/grpc/call.h"
#include "router/doors/grpc/generate_events.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

class BatchCall : public GrpcCall, public AnswerSink {
 public:
  BatchCall(const GrpcDoor& door, grpc::CallbackServerContext* context)
      : GrpcCall(door, context, "GenerateBatch") {}

  Waker* OnNews() override;
  // Writes the next message if none is being written.
  void Pump() override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;

 private:
  // One of the requests.
  struct One {
    explicit One(const weft::v1::GenerateRequest* from) : request(from), events(from) {}

    const weft::v1::GenerateRequest* request;
    GenerateEvents events;
    // It was let in; else `refused` says why it was not.
    std::optional<Answers> answers;
    absl::Status refused;
    bool ended = false;
  };

  void OnMessage() override;
  void OnSlow() override { CancelRequests(CancelReason::kSlowReader); }
  void Describe(AccessRecord* record) override;

  // The call's message; an error for one that is none, or asks for nothing or too much.
  absl::Status ReadBatch();
  // Each request by itself: what it asks for, or why it is refused.
  std::vector<absl::StatusOr<GenerateInput>> ReadRequests();
  void Submit(std::vector<absl::StatusOr<GenerateInput>> inputs, Admission::Permit permit);
  // `permit`, if there still is one, is the first of the request's.
  absl::StatusOr<std::vector<std::shared_ptr<Answer>>> SubmitOne(
      GenerateInput input, uint32_t choices, std::optional<Admission::Permit>* permit);
  void CancelRequests(CancelReason reason);
  // Reads the next event of any request into `response`; false when there is none. `unwanted` are
  // answers that nobody reads any more.
  bool TakeNext(weft::v1::GenerateBatchResponse* response, std::optional<Answers>* unwanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  weft::v1::GenerateBatchRequest batch_;
  int64_t deadline_us_ ABSL_GUARDED_BY(mutex_) = 0;  // 0 = none
  std::vector<One> ones_ ABSL_GUARDED_BY(mutex_);
  // The answers of all, to cancel and to describe them.
  std::optional<Answers> all_ ABSL_GUARDED_BY(mutex_);
  // Of ones_: how many have not ended, and who is looked at first.
  size_t left_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t first_token_us_ ABSL_GUARDED_BY(mutex_) = 0;
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  CancelReason cancel_reason_ ABSL_GUARDED_BY(mutex_) = CancelReason::kClientGone;
  grpc::ByteBuffer buffer_;  // being written
};

}  // namespace weft::router
