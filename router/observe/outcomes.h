// How requests end when they do not finish, in the words of the metrics. Plain values; whoever ends
// a request picks one and tells the probe.

#pragma once

#include <cstdint>

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

}  // namespace weft::router
