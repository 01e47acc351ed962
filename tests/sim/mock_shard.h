// A shard that computes nothing but remembers everything: which history each position of each KV
// block holds. It aborts on what would make a real shard answer wrongly: a slot used twice, a chunk
// that does not start where the KV ends, a position read that no block of the table covers or whose
// block does not hold this sequence's history, a block in tables of two KV groups, a write into a
// block that another sequence holds, a table longer than its window, a chunk and two blocks, a
// running batch that differs from the plan's. One thread. Steps run when they are planned; the
// simulation hands over their answers later.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"
#include "router/scheduler/scheduler.h"

namespace weft::router {

// What the engine would add to a plan's chunk from its own knowledge of the request.
struct MockRequest {
  uint64_t seed = 0;
  uint64_t cache_salt = 0;
};

class MockShard {
 public:
  using RequestOf = std::function<MockRequest(SequenceId)>;
  using LogOf = std::function<absl::Span<const TokenId>(SequenceId)>;

  explicit MockShard(const SchedulerConfig& config)
      : config_(config), block_tokens_(config.block_tokens), slots_(config.running_max) {}

  // A new epoch: no slots, no KV.
  void Reset(uint32_t kv_blocks);

  // Runs a step; `confirmed` is the last step whose answer the scheduler has seen.
  std::vector<SampledRow> Run(const StepPlan& plan, StepNumber confirmed, const LogOf& log_of,
                              const RequestOf& request_of);

  // The token of a request at a position of its log: what every run must produce.
  static TokenId TokenAt(uint64_t seed, Position position);

  // How often what windows are about did happen.
  struct WindowReport {
    // Blocks that left the front of a table.
    uint64_t left = 0;
    // Tables of new sequences that lack blocks of the beginning: prefix hits behind a window.
    uint64_t hits = 0;
    // Prompts under way that took blocks for those that left.
    uint64_t rolled = 0;
    // Blocks that left and came back in the same step, in whatever table.
    uint64_t came_back = 0;
  };
  const WindowReport& window_report() const { return window_report_; }

  // The slot's sequence belongs to the running batch.
  bool IsRunning(Slot slot) const { return slots_[slot].running; }

  // Calls f(slot, id) for the slots in use.
  template <typename F>
  void ForEachSlot(F f) const {
    for (Slot slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].used) f(slot, slots_[slot].id);
    }
  }

 private:
  struct Table {
    uint32_t first = 0;
    std::deque<BlockId> ids;
  };
  struct SlotState {
    bool used = false;
    bool running = false;
    SequenceId id = 0;
    MockRequest request;
    // By KV group.
    std::vector<Table> tables;
    // A number for the ids up to and with each position whose KV is written (and the salt).
    std::vector<uint64_t> history;
    TokenId last_token = 0;
  };
  struct Kv {
    uint64_t history = 0;
    StepNumber step = 0;
  };

  void ApplyDeltas(const StepPlan& plan);
  void ApplyDelta(const StepPlan& plan, const PlannedBlocks& delta, std::set<BlockId>* left);
  void Let(BlockId block);
  void Drop(Slot slot);
  void Start(const PlannedChunk& chunk, absl::Span<const TokenId> log, const MockRequest& request);
  // Runs one token: checks all KV before it, writes its own.
  void Compute(SlotState* state, TokenId token, StepNumber step);
  // Where in kv_ the position's KV of `group` is; the table must cover it.
  size_t PlaceOf(const SlotState& state, uint32_t group, size_t position) const;
  // What a row at `position` reads, as far as it is written, is this sequence's and was written by
  // steps up to `written_until`.
  void CheckReads(const SlotState& state, size_t position, StepNumber written_until) const;
  SampledRow Sample(Slot slot);

  const SchedulerConfig config_;
  const uint32_t block_tokens_;
  std::vector<SlotState> slots_;
  // By block and offset.
  std::vector<Kv> kv_;
  // By block: tables it is in, all of one KV group.
  struct Holders {
    uint32_t count = 0;
    uint32_t group = 0;
  };
  std::vector<Holders> holders_;
  WindowReport window_report_;
};

// A mixing function (splitmix64).
uint64_t Mix(uint64_t x);

}  // namespace weft::router
