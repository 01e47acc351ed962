// The way to one shard: unary gRPC calls of weft.shard.v1.ShardService as bytes, answered by
// events. An interface with one implementation for shards of this host and one for others;
// MakeShardClient picks. Owned by the shard group and called by the engine loop's thread only;
// replies go to a sink that must not block, on whichever thread they come. It never retries
// (invariant wire.order) and never looks inside a message.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/ids.h"
#include "router/shards/call.h"
#include "router/shards/poller.h"

namespace weft::router {

// A serialised message. Shared, so that one serialisation serves all ranks.
using SharedBytes = std::shared_ptr<const std::string>;

// What the caller wants back with the reply; means nothing to the transport.
struct ShardCallTag {
  // Epoch the call belongs to; 0 outside one.
  Epoch epoch = 0;
  // Number of the step, or of the call.
  uint64_t number = 0;
};

struct ShardReply {
  Rank rank = 0;
  ShardCall call = ShardCall::kInfo;
  ShardCallTag tag;
  // Of the call: the shard's own error, UNAVAILABLE for a broken channel, DEADLINE_EXCEEDED.
  absl::Status status;
  // The serialised answer when status is OK.
  std::string body;
  // From the call to its answer, microseconds.
  int64_t call_us = 0;
};

// Called once per call, from any thread; must not block.
using ShardReplySink = std::function<void(ShardReply reply)>;

class ShardClient {
 public:
  // Cancels what is in flight and waits until every reply was handed over.
  virtual ~ShardClient() = default;

  // Starts one call; its reply comes through the sink. `timeout_us` > 0. With `wait_for_ready` the
  // call waits for a connection instead of failing with UNAVAILABLE.
  virtual void Call(ShardCall call, const SharedBytes& request, ShardCallTag tag,
                    int64_t timeout_us, bool wait_for_ready) = 0;
  // False once an established connection broke; never blocks.
  virtual bool Connected() = 0;
  // The shard runs on this machine, so its process can be looked at.
  virtual bool is_local() const = 0;
};

// PEM files of mutual TLS: own certificate and key, and the authority that signs the shards'. All
// or none.
struct ShardTls {
  std::string cert;
  std::string key;
  std::string ca;
};

// Makes the client of one shard; as MakeShardClient below.
using ShardClientFactory = std::function<absl::StatusOr<std::unique_ptr<ShardClient>>(
    Rank rank, const std::string& address, const ShardTls& tls, ShardReplySink sink, Poller* poller,
    const Clock* clock)>;

// The client for an address: "unix:/path" or "host:port". A shard of this host is served by the
// calling thread through `poller`; another host needs `tls` and goes through gRPC's threads.
// INVALID_ARGUMENT names what is malformed, NOT_FOUND a file of `tls`. `poller` and `clock` must
// outlive the client.
absl::StatusOr<std::unique_ptr<ShardClient>> MakeShardClient(Rank rank, const std::string& address,
                                                             const ShardTls& tls,
                                                             ShardReplySink sink, Poller* poller,
                                                             const Clock* clock);

}  // namespace weft::router
