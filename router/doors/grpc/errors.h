// absl::Status to grpc::Status with google.rpc details in the trailer: BadRequest for field errors,
// RetryInfo where a retry makes sense, ErrorInfo with the stable reason. Pure; any thread.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace weft::router {

// A field error names the place of the field in the request message.
grpc::Status ToGrpcStatus(const absl::Status& status);

// "OK", "INVALID_ARGUMENT" ... for the metric's label.
absl::string_view GrpcCodeName(grpc::StatusCode code);

}  // namespace weft::router
