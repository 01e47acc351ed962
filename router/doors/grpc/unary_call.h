// A call with one answer to one message. What is done with the message is whoever registers the
// method's. On gRPC's threads, and Answer and Fail on any.

#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "router/doors/grpc/call.h"
#include "router/doors/grpc/request.h"
#include "router/errors.h"

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
    WEFT_RETURN_IF_ERROR(CheckMessageBytes(message()->Length(), door_.message_bytes_max));
    const bool good = grpc::SerializationTraits<Message>::Deserialize(message(), into).ok();
    message()->Clear();
    if (good) return absl::OkStatus();
    return FieldError("request", "is malformed, or text in it is not UTF-8");
  }

  template <typename Message>
  void Answer(const Message& answer) {
    bool own_buffer = false;
    const grpc::Status encoded =
        grpc::SerializationTraits<Message>::Serialize(answer, &buffer_, &own_buffer);
    WEFT_CHECK_MSG(encoded.ok(), encoded.error_message());
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
