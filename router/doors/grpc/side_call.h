// A call of gRPC's own services that writes messages now and then: one write at a time, and an end
// that waits for it. Base of the calls of Health/Watch and of reflection. On gRPC's threads, and
// Pump and Close on any.

#pragma once

#include <utility>

#include "common/clock.h"
#include "router/doors/grpc/call.h"
#include "router/doors/grpc/messages.h"

namespace weft::router {

class SideCall : public GrpcCall {
 public:
  void Close(const absl::Status& status) override {
    {
      absl::MutexLock lock(&mutex_);
      if (closing_.ok()) closing_ = status;         // from here on no write begins
      if (write_start_us_ != 0 && !ended_) return;  // OnWriteDone ends it
    }
    End(status);
  }
  void OnCancel() override { Close(absl::CancelledError("cancelled by the client")); }
  void OnWriteDone(bool ok) override {
    absl::Status closing;
    {
      absl::MutexLock lock(&mutex_);
      write_start_us_ = 0;
      closing = closing_;
    }
    if (closing.ok() && !ok) closing = absl::CancelledError("the client has gone");
    if (!closing.ok()) return End(closing);
    OnWritten();
  }

 protected:
  using GrpcCall::GrpcCall;

  // What was written has been taken; nothing is being written.
  virtual void OnWritten() = 0;

  // INVALID_ARGUMENT for one that is too large or malformed; the message is freed.
  template <typename Message>
  absl::Status Take(Message* into) {
    return TakeMessage(message(), door_.message_bytes_max, into);
  }

  // Nothing is being written, and the call neither ends nor has ended.
  bool may_write() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return write_start_us_ == 0 && closing_.ok() && !ended_;
  }
  // When it may.
  template <typename Message>
  void Write(const Message& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    write_start_us_ = MonotonicClock().NowUs();
    EncodeMessage(answer, &buffer_);
    // Under the lock, so that nobody ends the call before; gRPC answers on a thread of its own.
    StartWrite(&buffer_);
  }

 private:
  absl::Status closing_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer buffer_;  // being written
};

}  // namespace weft::router
