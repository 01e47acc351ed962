// Forming one epoch: shards that fit together go through Rendezvous on rank 0, JoinGroup on all and
// Warmup on all. Owned by the shard group, engine loop's thread only: it sends the calls of each
// stage and takes their answers; when to begin, and what a failure means, the group decides.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/shards/agreement.h"
#include "router/shards/fanout.h"
#include "router/shards/router_model.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

// An epoch that has begun.
struct FormedGroup {
  Epoch epoch = 0;
  // Smallest of all ranks.
  uint32_t kv_blocks = 0;
  GroupAgreement agreement;
  // Rank 0's.
  weft::shard::v1::InfoResponse info;
  weft::shard::v1::WarmupResponse warmup;
};

class EpochForming {
 public:
  enum class Progress : uint8_t {
    kUnderWay,
    // All ranks have joined; Warm is next.
    kJoined,
    // All ranks are warm; Take is next.
    kWarm,
  };

  // Whether the model of rank 0 is the one of the router's other groups.
  using CheckModel = std::function<absl::Status(const weft::shard::v1::InfoResponse&)>;

  // `router_id` is never 0, `model` the router's own, `check_model` may be null. `shards` must
  // outlive this.
  EpochForming(uint64_t router_id, RouterModel model, ShardFanout* shards,
               CheckModel check_model = nullptr)
      : router_id_(router_id),
        model_(std::move(model)),
        check_model_(std::move(check_model)),
        shards_(shards) {}

  // Whether shards that say `infos` (in rank order) fit together and have the router's model; once
  // a group has formed, whether they are still the model that it served. FAILED_PRECONDITION says
  // in words what differs.
  absl::Status Check(absl::Span<const weft::shard::v1::InfoResponse> infos);
  // REQUIRES: Check was OK. `infos` in rank order.
  void Begin(Epoch epoch, absl::Span<const weft::shard::v1::InfoResponse> infos);
  // An answer of this epoch to Rendezvous, JoinGroup or Warmup. An error names the rank and the
  // call; UNAVAILABLE means that the rank cannot be reached.
  absl::StatusOr<Progress> OnReply(const ShardReply& reply);
  void Warm();
  // REQUIRES: Progress::kWarm was returned.
  FormedGroup Take();

  // A group has formed in this router's life.
  bool formed_before() const { return first_info_.has_value(); }

 private:
  // The ranks meet by `token`, or go on with the communicator of `kept_epoch`.
  void Join(std::string token, Epoch kept_epoch);
  // Blocks of the rank's pool, which it answers for each KV group alike.
  absl::StatusOr<uint32_t> PoolBlocks(Rank rank,
                                      const weft::shard::v1::WarmupResponse& response) const;
  // `rank` is through the present stage; true when all are.
  bool AllDone(Rank rank);

  const uint64_t router_id_;
  const RouterModel model_;
  const CheckModel check_model_;
  ShardFanout* const shards_;
  // Rank 0's Info when the first epoch formed.
  std::optional<weft::shard::v1::InfoResponse> first_info_;

  // -- Of the attempt under way
  FormedGroup group_;
  // The call whose answers are waited for.
  ShardCall stage_ = ShardCall::kRendezvous;
  std::vector<bool> done_;
};

}  // namespace weft::router
