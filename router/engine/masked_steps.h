// The masked rows of the steps in flight: whose mask waits for a token, is being worked out, or is
// there. Collects each step's masks into parts to be sent. Owned by one engine loop, its thread
// only; knows no scheduler and no shard.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace weft::router {

class MaskedSteps {
 public:
  // A part of a step's masks that is ready to be sent: a serialised MaskRowsRequest.
  struct Part {
    StepNumber step = 0;
    std::string request;
  };

  // A new epoch: forgets everything.
  void Reset(Epoch epoch);
  // A row of `step`, which was just sent. Steps come in order. True when its mask may be worked out
  // now: the sequence has no other masked row in flight.
  bool Add(StepNumber step, Slot slot, SequenceId sequence);
  // All rows of the step are known.
  void Sent(StepNumber step);
  // `step` has been answered: its rows are done with. The sequences whose tokens it gave are in
  // Answered(); each is asked for by TakeNext.
  void Answered(StepNumber step);
  // The row of the sequence that waits for the token that is now known; none when it has none in
  // flight. Its mask is being worked out from here on.
  struct Row {
    StepNumber step = 0;
    Slot slot = 0;
  };
  std::optional<Row> TakeNext(SequenceId sequence);
  // The sequence has ended: rows of it that wait for a token get none.
  void Free(SequenceId sequence);
  // Masks of these sequences' rows of `step`, serialised. Nothing when the step is not in flight.
  void Made(StepNumber step, const std::vector<SequenceId>& sequences, std::string rows);

  // What is ready to be sent; each part once.
  std::vector<Part> TakeReady() { return std::exchange(ready_, {}); }
  // Sequences with masked rows in flight, for tests.
  size_t rows() const;

 private:
  enum class State : uint8_t { kWaiting, kMaking, kMade };
  struct Entry {
    Slot slot = 0;
    State state = State::kWaiting;
  };
  struct Step {
    StepNumber number = 0;
    absl::flat_hash_map<SequenceId, Entry> rows;
    size_t missing = 0;
    bool sent = false;
    std::string bytes;
  };
  void Put(Step* step, absl::string_view rows, size_t count);
  void Flush(Step* step);

  Epoch epoch_ = 0;
  std::deque<Step> steps_;
  std::vector<Part> ready_;
};

}  // namespace weft::router
