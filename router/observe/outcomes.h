// How requests end when they do not finish, in the words that metrics and access log share. Plain
// values; whoever ends a request picks one and tells the probe.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "router/request.h"

namespace weft::router {

// Why admission or a door turned a good request away.
enum class RejectReason : uint8_t {
  kQueueRequests,
  kQueueTokens,
  kDraining,
  kTooLong,
  kNotReady,
  kTextBytes,
  kTenant,
  kIdentity
};
// How a request failed that was not cancelled by its client.
enum class FailureReason : uint8_t {
  kValidation,
  kOverloaded,
  kUnavailable,
  kDeadline,
  kShardLost,
  kInternal
};
// Where a cancelled request was.
enum class CancelPhase : uint8_t { kText, kQueue, kPrefill, kDecode };

// Why a trace that was begun or asked for did not reach its collector: the collector was away for
// too long, it refused it for good, its caller asked for more than the cap, or the process ended.
enum class TraceDrop : uint8_t { kQueueFull, kRefused, kOverCap, kShutdown };

// By whom or by what a request was ended before its time; empty for kNone.
constexpr absl::string_view CancelReasonName(CancelReason reason) {
  switch (reason) {
    case CancelReason::kNone:
      return "";
    case CancelReason::kClientGone:
      return "client";
    case CancelReason::kAdmin:
      return "admin";
    case CancelReason::kDeadline:
      return "deadline";
    case CancelReason::kQueueTimeout:
      return "queue_timeout";
    case CancelReason::kSlowReader:
      return "slow_reader";
    case CancelReason::kStopMatched:
      return "stop_sequence";
  }
  return "";
}

}  // namespace weft::router
