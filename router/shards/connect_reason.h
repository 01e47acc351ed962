// Why there is no connection to a shard, for people: the words of who tried to connect, which say
// what broke, and the way out. Pure functions for the clients.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

// The ways to a shard, which break in different ways.
enum class ShardRoute : uint8_t {
  kMutualTls,
  // TCP in clear, on this host.
  kLoopback,
  kUnixSocket,
};

// One line about `address`, as --shard names it. `why` is what was said of the last attempt to
// connect; empty when none has ended yet.
std::string NoConnection(ShardRoute route, absl::string_view address, absl::string_view why);

// The name could not be looked up, as `why` says.
bool IsLookupFailure(absl::string_view why);

}  // namespace weft::router
