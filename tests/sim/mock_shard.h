// A shard that computes nothing but remembers everything: which history each position of each KV
// block holds. It aborts on what would make a real shard answer wrongly: a slot used twice, a chunk
// that does not start where the KV ends, a block read that does not hold this sequence's history, a
// write into a block that another sequence holds, a running batch that differs from the plan's.
// One thread. Steps run when they are planned; the simulation hands over their answers later.

#pragma once

#include <cstdint>
#include <functional>
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

  MockShard(uint32_t running_max, uint32_t block_tokens)
      : block_tokens_(block_tokens), slots_(running_max) {}

  // A new epoch: no slots, no KV.
  void Reset(uint32_t kv_blocks);

  // Runs a step; `confirmed` is the last step whose answer the scheduler has seen.
  std::vector<SampledRow> Run(const StepPlan& plan, StepNumber confirmed, const LogOf& log_of,
                              const RequestOf& request_of);

  // The token of a request at a position of its log: what every run must produce.
  static TokenId TokenAt(uint64_t seed, Position position);

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
  struct SlotState {
    bool used = false;
    bool running = false;
    SequenceId id = 0;
    MockRequest request;
    std::vector<BlockId> table;
    // A number for the ids up to and with each position whose KV is written (and the salt).
    std::vector<uint64_t> history;
    TokenId last_token = 0;
  };
  struct Kv {
    uint64_t history = 0;
    StepNumber step = 0;
  };

  void Drop(Slot slot);
  void Start(const PlannedChunk& chunk, absl::Span<const TokenId> log, const MockRequest& request);
  // Runs one token: checks all KV before it, writes its own.
  void Compute(SlotState* state, TokenId token, StepNumber step);
  void CheckReads(const SlotState& state, StepNumber written_until) const;
  SampledRow Sample(Slot slot);

  const uint32_t block_tokens_;
  std::vector<SlotState> slots_;
  // By block and offset.
  std::vector<Kv> kv_;
  // By block: tables it is in.
  std::vector<uint32_t> holders_;
};

// A mixing function (splitmix64).
uint64_t Mix(uint64_t x);

}  // namespace weft::router
