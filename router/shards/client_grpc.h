// The way to a shard of another host: gRPC's own client over mutual TLS. Owned by the shard group;
// calls come from the engine loop's thread, replies are handed over on gRPC's threads. It never
// repeats a call; a call that waited in vain for a connection says what the last attempt broke of
// and what to do about it. A name is looked up again whenever its connection ends, and every two
// seconds while nobody knows it.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "router/shards/client.h"

namespace weft::router {

// A client over its own channel. `address` is "host:port", `tls` complete. NOT_FOUND names a file
// of `tls` that cannot be read.
absl::StatusOr<std::unique_ptr<ShardClient>> MakeGrpcShardClient(Rank rank,
                                                                 const std::string& address,
                                                                 const ShardTls& tls,
                                                                 ShardReplySink sink);

}  // namespace weft::router
