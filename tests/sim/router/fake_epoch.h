// One epoch as its shards live it: who has joined, the steps that came, and the model that runs
// them once for all ranks when all have them. It checks what only the shards' side sees: order and
// sameness of steps (wire.order, rank.same), rows (ahead.count), blocks and tables (MockModel).
// Owned by FakeShards; one thread.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "router/shards/call.h"
#include "router/shards/client.h"
#include "tests/sim/router/script.h"
#include "tests/sim/router/watch.h"
#include "tests/support/mock_model.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router::sim {

// What the model of a script is.
testing::MockShape ShapeOf(const Settings& settings);

class FakeEpoch {
 public:
  FakeEpoch(Epoch epoch, const Settings& settings, Watch* watch);

  Epoch epoch() const { return epoch_; }

  // -- Forming
  void Join(Rank rank, uint32_t kv_blocks);
  // All ranks have joined.
  bool Complete() const;
  // Blocks that the group uses: of the smallest pool.
  uint32_t kv_blocks() const { return kv_blocks_; }
  // Ends the membership of `rank`; no step runs any more.
  void Leave(Rank rank);

  // -- Steps
  // The router is about to send step `step`; it has rank 0's answers up to `delivered`.
  void Sent(StepNumber step, StepNumber delivered);
  // Step `step` has come to `rank`. True when all have it now.
  bool Arrived(Rank rank, StepNumber step, ShardCall call, const SharedBytes& request);
  // A part of the masks of step `step` has come to `rank`. False when they are of no step that runs
  // here.
  bool MasksArrived(Rank rank, StepNumber step, const SharedBytes& request);
  // The next step is ready, and may run once the device is free.
  bool NextReady() const;
  // Its masked rows have their masks on all ranks, so that it can end. REQUIRES: NextReady().
  bool MasksReady();
  StepNumber next_step() const { return next_; }
  // How long the next step takes.
  int64_t NextUs() const;
  // Runs the next step. REQUIRES: NextReady(). The response is rank 0's; valid until the next call.
  weft::shard::v1::StepResponse& RunNext();
  // Slots that are held.
  size_t held_slots() const { return model_ == nullptr ? 0 : model_->held_slots(); }
  SequenceId SequenceOf(Slot slot) const { return slots_[slot].sequence; }

 private:
  struct Step {
    StepNumber step = 0;
    ShardCall call = ShardCall::kDecode;
    SharedBytes request;
    uint32_t arrived = 0;
    // As of when it was sent.
    StepNumber delivered = 0;
    int64_t tokens = 0;
    // Of each rank, the parts one behind the other.
    std::vector<std::string> masks;
    std::vector<SequenceId> sequences;
  };
  struct SlotState {
    SequenceId sequence = 0;
    uint32_t length = 0;
    uint32_t length_max = 0;
    uint32_t tenant = 0;
  };

  testing::MockModel& Model();
  // Reads the next step's message, once. False when it does not parse.
  bool ParseNext();
  void RunChunks(const Step& step, const weft::shard::v1::PrefillRequest& request);
  void CheckBlocks(const weft::shard::v1::PrefillRequest& request);
  void CheckDeltas(const weft::shard::v1::StepHeader& header,
                   const std::vector<uint32_t>& shared_blocks);
  void CheckRows(Step* step, size_t sampled_chunks);

  const Epoch epoch_;
  const Settings& settings_;
  Watch* const watch_;
  std::vector<bool> joined_;
  uint32_t kv_blocks_ = 0;
  std::unique_ptr<testing::MockModel> model_;
  // Sent and not run; then one that ran is kept for a while in ran_.
  std::deque<Step> steps_;
  std::deque<Step> ran_;
  StepNumber next_ = 1;
  StepNumber sent_ = 0;
  // What prefill_, decode_ or filter_ holds, and whether it was good.
  StepNumber parsed_ = 0;
  bool parsed_well_ = false;
  std::vector<StepNumber> arrived_;
  std::vector<SlotState> slots_;
  // By block: whose tokens are in it.
  std::vector<uint32_t> tenant_of_block_;
  weft::shard::v1::PrefillRequest prefill_;
  weft::shard::v1::DecodeRequest decode_;
  weft::shard::v1::FilterBatchRequest filter_;
  weft::shard::v1::StepResponse response_;
};

}  // namespace weft::router::sim
