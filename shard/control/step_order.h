// Step calls of one epoch in the order of their numbers (invariant wire.order): each runs once,
// those that overtook an earlier one on the wire wait for it. Part of the executor's state, guarded
// by its lock; never blocks. Bounded: the router has two steps in flight on rank 0, and another
// rank may lag two more behind before the group is lost.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "common/ids.h"
#include "common/limits.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// A step call on its way through the shard. Request and response belong to the caller and live
// until `done`, which is called exactly once, on any thread, under no lock.
struct StepCall {
  std::variant<const v1::PrefillRequest*, const v1::DecodeRequest*, const v1::FilterBatchRequest*>
      request;
  v1::StepResponse* response = nullptr;
  absl::AnyInvocable<void(absl::Status)> done;
  // When the call came, microseconds of the executor's clock.
  int64_t arrived_us = 0;

  const v1::StepHeader& header() const {
    return std::visit([](const auto* r) -> const v1::StepHeader& { return r->header(); }, request);
  }
  // "Prefill", "Decode" or "FilterBatch".
  const char* method() const;
};

class StepOrder {
 public:
  // Steps that may wait here or run, the unanswered ones together.
  static constexpr uint32_t kWindow = 2 * kStepsInFlightMax;

  // Takes the call in. ALREADY_EXISTS for a step that came before, FAILED_PRECONDITION for one
  // beyond the window, INVALID_ARGUMENT for step 0; the call is then left with the caller.
  absl::Status Push(StepCall* call);

  // The next step in order is here.
  bool HasNext() const { return waiting_[next_ % kWindow].has_value(); }
  // REQUIRES: HasNext().
  StepCall PopNext();

  // The oldest unanswered step has been answered; makes room for one more.
  void OnAnswered() { ++unanswered_; }
  StepNumber unanswered() const { return unanswered_; }

  // All calls that wait, in order; they are no longer here.
  std::vector<StepCall> TakeAll();

 private:
  // Next step to run, and the oldest without an answer; unanswered_ <= next_.
  StepNumber next_ = 1;
  StepNumber unanswered_ = 1;
  std::array<std::optional<StepCall>, kWindow> waiting_;
};

}  // namespace weft::shard
