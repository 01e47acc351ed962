// What the shard group is doing, and why it has a shard restarted: the words that the group, the
// engine loop and the metrics share. Plain values.

#pragma once

#include <cstdint>

namespace weft::router {

enum class GroupState : uint8_t {
  kConnecting,
  kLoading,
  kJoining,
  kWarming,
  kServing,
  kRecovering
};

// As metrics and logs spell it: "joining" ...
constexpr const char* GroupStateName(GroupState state) {
  constexpr const char* kNames[] = {"connecting", "loading", "joining",
                                    "warming",    "serving", "recovering"};
  return kNames[static_cast<uint8_t>(state)];
}

// An epoch is being formed, or is there.
constexpr bool InEpoch(GroupState state) {
  return state >= GroupState::kJoining && state <= GroupState::kServing;
}

enum class RestartReason : uint8_t { kExit, kOutOfMemory, kComm, kTimeout };

}  // namespace weft::router
