// The clients of all ranks of a group, and how a message goes to one of them or to all. Owned by
// the shard group, engine loop's thread only; it never blocks and keeps no state of the calls it
// sends.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/ids.h"
#include "google/protobuf/message.h"
#include "router/shards/client.h"

namespace weft::router {

class ShardFanout {
 public:
  // `clients` in rank order, 1 .. kWorldMax.
  explicit ShardFanout(std::vector<std::unique_ptr<ShardClient>> clients);

  uint32_t world() const { return static_cast<uint32_t>(clients_.size()); }
  ShardClient& client(Rank rank) { return *clients_[rank]; }

  // One call to one rank. `timeout_us` > 0.
  void Send(Rank rank, ShardCall call, const google::protobuf::Message& request, ShardCallTag tag,
            int64_t timeout_us, bool wait_for_ready = false);
  // The same bytes to every rank.
  void SendAll(ShardCall call, const SharedBytes& request, ShardCallTag tag, int64_t timeout_us);

 private:
  std::vector<std::unique_ptr<ShardClient>> clients_;
};

}  // namespace weft::router
