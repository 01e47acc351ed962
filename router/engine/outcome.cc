#include "router/engine/outcome.h"

#include <string>

#include "absl/strings/match.h"
#include "router/errors.h"

namespace weft::router {

RejectReason RejectReasonOf(const absl::Status& overloaded) {
  const std::string reason = ErrorReason(overloaded);
  if (reason == "TEXT_BYTES_FULL") return RejectReason::kTextBytes;
  if (reason == "QUEUE_TOKENS_FULL") return RejectReason::kQueueTokens;
  if (absl::StartsWith(reason, "TENANT_")) return RejectReason::kTenant;
  return RejectReason::kQueueRequests;
}

absl::Status ServerStopping() {
  return UnavailableError("SHUTTING_DOWN", "the server is shutting down", absl::Seconds(2));
}

absl::Status OutputNotFinite() {
  return absl::InternalError("the model's output for this request is not finite (NaN or infinity)");
}

void CountUnfinished(const Answer& answer, CancelPhase phase, const absl::Status& why,
                     Probe* probe) {
  const CancelReason reason = answer.cancelled();
  if (absl::IsUnavailable(why) && reason != CancelReason::kQueueTimeout) {
    const bool lost = ErrorReason(why) == "GROUP_LOST";
    probe->Failed(lost ? FailureReason::kShardLost : FailureReason::kUnavailable);
  } else if (reason != CancelReason::kNone && reason != CancelReason::kStopMatched) {
    probe->Cancelled(reason, phase);
  } else if (absl::IsResourceExhausted(why)) {
    probe->Rejected(RejectReasonOf(why), answer.tenant().get());
    probe->Failed(FailureReason::kOverloaded);
  } else if (absl::IsInvalidArgument(why)) {
    probe->Failed(FailureReason::kValidation);
  } else {
    probe->Failed(FailureReason::kInternal);
  }
}

}  // namespace weft::router
