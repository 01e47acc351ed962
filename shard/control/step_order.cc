#include "shard/control/step_order.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::shard {

const char* StepCall::method() const {
  static constexpr const char* kNames[] = {"Prefill", "Decode", "FilterBatch"};
  return kNames[request.index()];
}

absl::Status StepOrder::Push(StepCall* call) {
  const StepNumber step = call->header().step();
  if (step == 0) return absl::InvalidArgumentError("header.step: steps count from 1");
  if (step < next_) return absl::AlreadyExistsError(absl::StrCat("step ", step, " came before"));
  // step >= next_ >= unanswered_, so this cannot wrap.
  if (step - unanswered_ >= kWindow) {
    return absl::FailedPreconditionError(absl::StrCat("step ", step, " is ahead of step ",
                                                      unanswered_, ", the oldest unanswered, by ",
                                                      kWindow, " or more"));
  }
  std::optional<StepCall>& place = waiting_[step % kWindow];
  if (place.has_value()) {
    return absl::AlreadyExistsError(absl::StrCat("step ", step, " came before"));
  }
  place.emplace(std::move(*call));
  return absl::OkStatus();
}

StepCall StepOrder::PopNext() {
  WEFT_CHECK(HasNext());
  std::optional<StepCall>& place = waiting_[next_ % kWindow];
  StepCall call = *std::move(place);
  place.reset();
  ++next_;
  return call;
}

std::vector<StepCall> StepOrder::TakeAll() {
  std::vector<StepCall> calls;
  for (StepNumber step = next_; step < next_ + kWindow; ++step) {
    std::optional<StepCall>& place = waiting_[step % kWindow];
    if (!place.has_value()) continue;
    calls.push_back(*std::move(place));
    place.reset();
  }
  return calls;
}

}  // namespace weft::shard
