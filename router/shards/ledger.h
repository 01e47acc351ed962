// The steps in flight of one epoch and who has answered them. Puts rank 0's answers back in order
// (two calls of one channel may complete on two threads), compares the ranks' hashes, and holds an
// answer back while another rank is more than two steps behind, so that a slow rank slows the
// group instead of failing it; one that never answers is found by deadline or heartbeat. Owned by
// the shard group, engine loop's thread only, no I/O.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

// FNV-1a over the ids, 4 bytes each, little endian (StepResponse.ids_hash).
uint32_t HashIds(const google::protobuf::RepeatedField<uint32_t>& ids);

// What rank 0 said of a step, and how long its call took.
struct StepAnswer {
  weft::shard::v1::StepResponse response;
  int64_t call_us = 0;
};

class StepLedger {
 public:
  // Begins an epoch of `world` ranks: forgets everything.
  void Reset(Epoch epoch, uint32_t world);

  // Step `step` was sent to all ranks. Steps come in order, without gaps.
  void Sent(StepNumber step, int64_t now_us);
  // `rank` answered. INTERNAL when the answer does not fit: another epoch or step, a second answer,
  // ids that do not match their hash, a hash unlike another rank's.
  absl::Status Answered(Rank rank, StepAnswer answer);
  // Rank 0's next answer in step order, once it may be used; empty when there is none yet.
  std::optional<StepAnswer> TakeNext();

  // Steps some rank has not answered.
  size_t in_flight() const { return steps_.size(); }
  // `rank` owes an answer since this time; 0 when it owes none.
  int64_t OwesSinceUs(Rank rank) const;

 private:
  struct Step {
    StepNumber step = 0;
    int64_t sent_us = 0;
    std::vector<bool> answered;
    uint32_t missing = 0;
    std::optional<uint32_t> hash;
    std::optional<StepAnswer> from_rank_0;
    bool taken = false;
  };

  Epoch epoch_ = 0;
  uint32_t world_ = 0;
  // Ascending, without gaps; a step leaves when all ranks answered and its result was taken.
  std::deque<Step> steps_;
};

}  // namespace weft::router
