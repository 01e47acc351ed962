// A call with one answer to one message. What is done with the message is whoever registers the
// method's. On gRPC's threads, and Answer and Fail on any.

#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "router/doors/grpc/call.h"
#include "router/doors/grpc/messages.h"

namespace weft::router {

class UnaryCall : public GrpcCall {
 public:
  using Answerer = std::function<void(const std::shared_ptr<UnaryCall>& call)>;
  struct Form {
    // What needs no work is quiet in the log: it is asked for every few seconds, as on HTTP.
    bool quiet = false;
    // The answerer answers before it returns.
    bool at_once = false;
  };

  UnaryCall(const GrpcDoor& door, grpc::CallbackServerContext* context, absl::string_view method,
            Answerer answer, Form form)
      : GrpcCall(door, context, method), answer_(std::move(answer)), form_(form) {}

  // Before the answerer returns.
  size_t message_bytes() { return message()->Length(); }
  using GrpcCall::tenant;

  // Once, before the answerer returns; the message is freed.
  template <typename Message>
  absl::Status Read(Message* into) {
    return TakeMessage(message(), door_.message_bytes_max, into);
  }

  template <typename Message>
  void Answer(const Message& answer) {
    EncodeMessage(answer, &buffer_);
    EndWith(&buffer_);
  }
  void Fail(const absl::Status& status) { End(status); }

 private:
  void OnMessage() override {
    answer_(std::static_pointer_cast<UnaryCall>(shared_from_this()));
    message()->Clear();  // it may have been refused unread
  }
  bool quiet() const override { return form_.quiet; }
  bool at_once() const override { return form_.at_once; }

  const Answerer answer_;
  const Form form_;
  grpc::ByteBuffer buffer_;  // being written
};

}  // namespace weft::router
