#include "router/live_request.h"

namespace weft::router {

absl::Status CancelStatus(EndCause cause) {
  switch (cause) {
    case EndCause::kDeadline:
      return absl::DeadlineExceededError("the request's deadline passed");
    case EndCause::kSlowReader:
      return absl::CancelledError("the client reads too slowly");
    case EndCause::kAdmin:
      return absl::CancelledError("cancelled by request id");
    default:
      return absl::CancelledError("the client is gone");
  }
}

}  // namespace weft::router
