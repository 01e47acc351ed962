// The calls of weft.shard.v1.ShardService by name. Shared by the transports, the shard group and
// the metrics; knows no transport.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::router {

enum class ShardCall : uint8_t {
  kInfo,
  kRendezvous,
  kJoinGroup,
  kLeaveGroup,
  kWarmup,
  kPrefill,
  kDecode,
  kFilterBatch,
  // Carries (epoch, step) too, of the step whose masks it brings.
  kMaskRows,
  // Open for as long as the router lives, so that its time is no measure of anything.
  kHold
};

// True for the calls that carry (epoch, step).
inline bool IsStep(ShardCall call) {
  return call >= ShardCall::kPrefill && call <= ShardCall::kFilterBatch;
}
// The method as the proto spells it: "Info", "Prefill" ...
const char* CallName(ShardCall call);
// "/weft.shard.v1.ShardService/Info" ..., by ShardCall.
std::vector<std::string> CallPaths();

}  // namespace weft::router
