// Messages of calls to and from bytes, bounded and refused in one wording. Pure; any thread.

#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "router/doors/grpc/request.h"
#include "router/errors.h"

namespace weft::router {

// Reads `bytes` and frees them, whatever comes of it. INVALID_ARGUMENT names the field "request"
// when they are more than `bytes_max`, or says `malformed` of it.
template <typename Message>
absl::Status TakeMessage(grpc::ByteBuffer* bytes, size_t bytes_max, Message* into,
                         absl::string_view malformed = "is malformed, or text in it is not UTF-8") {
  absl::Status good = CheckMessageBytes(bytes->Length(), bytes_max);
  if (good.ok() && !grpc::SerializationTraits<Message>::Deserialize(bytes, into).ok()) {
    good = FieldError("request", malformed);
  }
  bytes->Clear();
  return good;
}

// Replaces what `into` holds, which nobody may be writing.
template <typename Message>
void EncodeMessage(const Message& message, grpc::ByteBuffer* into) {
  into->Clear();  // Serialize takes an empty buffer only
  bool own_buffer = false;
  const grpc::Status encoded =
      grpc::SerializationTraits<Message>::Serialize(message, into, &own_buffer);
  WEFT_CHECK_MSG(encoded.ok(), encoded.error_message());
}

}  // namespace weft::router
