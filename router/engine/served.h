// What the engine says of itself to the doors: the served model's shape and the server's state.
// Plain data.

#pragma once

#include <cstdint>
#include <string>

namespace weft::router {

// What the shards say of the model; zeros until the first group formed.
struct ServedShape {
  std::string family;
  uint64_t parameters = 0;
  uint32_t vocab_size = 0;
  uint32_t context_tokens = 0;
  // Largest prompt + max_tokens that admission accepts: min(context, KV pool).
  uint32_t request_tokens_max = 0;
  std::string dtype;
  std::string device;
};

enum class ServerState : uint8_t { kStarting, kLoading, kWarming, kReady, kRecovering, kDraining };

struct ServerStatus {
  ServerState state = ServerState::kStarting;
  // 0 .. 100 while loading.
  int percent = 0;
  // For people: what it waits for.
  std::string detail;
  // Work exists and no step has ended for this long, microseconds; 0 otherwise.
  int64_t stalled_us = 0;
};

}  // namespace weft::router
