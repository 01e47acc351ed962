#include "shard/control/mask_window.h"

#include "absl/strings/str_cat.h"

namespace weft::shard {

absl::StatusOr<std::shared_ptr<StepMasks>> MaskWindow::Of(StepNumber step, StepNumber unanswered) {
  if (step == 0) return absl::InvalidArgumentError("step: steps count from 1");
  if (step < unanswered) {
    return absl::AlreadyExistsError(absl::StrCat("step: ", step, " has been answered"));
  }
  if (step - unanswered >= StepOrder::kWindow) {
    return absl::FailedPreconditionError(absl::StrCat("step: ", step, " is ahead of ", unanswered,
                                                      ", the oldest unanswered, by ",
                                                      StepOrder::kWindow, " or more"));
  }
  Entry& entry = entries_[step % StepOrder::kWindow];
  if (entry.step != step || entry.masks == nullptr) {
    entry = Entry{step, std::make_shared<StepMasks>(heartbeat_)};
  }
  return entry.masks;
}

std::shared_ptr<StepMasks> MaskWindow::Find(StepNumber step) const {
  const Entry& entry = entries_[step % StepOrder::kWindow];
  return entry.step == step ? entry.masks : nullptr;
}

void MaskWindow::Abort() {
  for (const Entry& entry : entries_) {
    if (entry.masks != nullptr) entry.masks->Abort();
  }
}

}  // namespace weft::shard
