// Why there is no connection to a shard of another host, for people: gRPC's words, which say what
// broke, and the way out. Pure functions for the client over gRPC.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

// One line about `address` ("host:port"). `why` is what gRPC said of its last attempt to connect;
// empty when none has ended yet.
std::string NoConnection(absl::string_view address, absl::string_view why);

// The name could not be looked up, as `why` says.
bool IsLookupFailure(absl::string_view why);

}  // namespace weft::router
