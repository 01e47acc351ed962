// One Generate call: a reactor that writes the events of its request, one message a token, and
// cancels the request when the stream is dropped. Calls come from gRPC's threads (OnWriteDone,
// OnCancel, OnDone), from the answer's writer (OnNews, Pump) and from the watcher (CheckSlow); a
// mutex orders them. It keeps itself alive until OnDone.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "router/doors/door_context.h"
#include "router/doors/entrance.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

class GenerateReactor;

// The calls in flight: wakes those with news once per batch of events, and lets the watcher look at
// all. Lives as long as the server.
class GrpcCalls : public Waker {
 public:
  void MarkDirty(std::shared_ptr<GenerateReactor> call);
  void Wake() override;

  void Add(GenerateReactor* call);
  void Remove(GenerateReactor* call);
  void CheckSlow(int64_t now_us, int64_t timeout_us);

 private:
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<GenerateReactor>> dirty_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<GenerateReactor*> all_ ABSL_GUARDED_BY(mutex_);
};

class GenerateReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                        public AnswerSink,
                        public std::enable_shared_from_this<GenerateReactor> {
 public:
  // Reads the request and submits it, or finishes the call with the error. Returns the reactor to
  // hand to gRPC.
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(DoorContext* doors, GrpcCalls* calls,
                                                           grpc::CallbackServerContext* context,
                                                           grpc::ByteBuffer* request,
                                                           size_t message_bytes_max);

  Waker* OnNews() override;
  // Writes the next message if none is being written.
  void Pump();
  void CheckSlow(int64_t now_us, int64_t timeout_us);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateReactor(DoorContext* doors, GrpcCalls* calls, grpc::CallbackServerContext* context);

  void Submit(grpc::ByteBuffer* request, size_t message_bytes_max);
  void End(const absl::Status& status);
  void CancelRequest(CancelReason reason);
  // Reads the answer's next token or end into `response`. True when there is something to write or
  // `status` ends the call.
  bool TakeNext(weft::v1::GenerateResponse* response, bool* last, absl::Status* status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillToken(const AnswerToken& token, weft::v1::GenerateResponse* response) const;
  void FillHead(weft::v1::GenerateResponse* response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  DoorContext* const doors_;
  GrpcCalls* const calls_;
  grpc::CallbackServerContext* const context_;
  const int64_t start_us_;
  // "ip:port", and the client's trace context; for the access log.
  const std::string client_;
  const std::string traceparent_;
  int64_t deadline_us_ = 0;  // 0 = none
  weft::v1::GenerateRequest request_;
  std::shared_ptr<GenerateReactor> self_;

  absl::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);
  AnswerToken token_ ABSL_GUARDED_BY(mutex_);
  bool head_sent_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t first_token_us_ ABSL_GUARDED_BY(mutex_) = 0;
  bool dirty_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t write_start_us_ ABSL_GUARDED_BY(mutex_) = 0;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // `context_` is about to go.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  CancelReason cancel_reason_ ABSL_GUARDED_BY(mutex_) = CancelReason::kClientGone;
  grpc::StatusCode code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::OK;
  grpc::ByteBuffer buffer_;  // being written
};

}  // namespace weft::router
