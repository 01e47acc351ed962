#include "shard/step_masks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/thread_watch.h"

namespace weft::shard {
namespace {

// A device that waits for masks beats so often.
constexpr std::chrono::milliseconds kBeat(50);

}  // namespace

absl::Status StepMasks::Expect(absl::Span<const Slot> slots) {
  const std::lock_guard<std::mutex> lock(mutex_);
  WEFT_CHECK(!missing_.has_value());
  size_t missing = 0;
  for (const Slot slot : slots) missing += rows_.try_emplace(slot).second ? 1 : 0;
  missing_ = missing;
  deadline_ = Clock::now() + wait_;
  if (rows_.size() != slots.size()) {
    return absl::InvalidArgumentError("rows: a mask came for a slot that samples no masked row");
  }
  if (IsSettled()) settled_.notify_all();
  return absl::OkStatus();
}

absl::Status StepMasks::Put(Slot slot, RowMask mask, uint32_t rows_max) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto row = rows_.find(slot);
  if (row == rows_.end()) {
    if (missing_.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rows: slot ", slot, " samples no masked row in this step"));
    }
    if (rows_.size() >= rows_max) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rows: more than ", rows_max, " masks for one step"));
    }
    row = rows_.try_emplace(slot).first;
  } else if (row->second.has_value()) {
    return absl::AlreadyExistsError(absl::StrCat("rows: slot ", slot, " has its mask already"));
  }
  row->second = std::move(mask);
  if (missing_.has_value()) --*missing_;
  if (IsSettled()) settled_.notify_all();
  return absl::OkStatus();
}

void StepMasks::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  settled_.notify_all();
}

bool StepMasks::Settled() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return IsSettled() || Clock::now() >= deadline_;
}

absl::Status StepMasks::Wait() const {
  std::unique_lock<std::mutex> lock(mutex_);
  for (Clock::time_point now = Clock::now(); !IsSettled() && now < deadline_; now = Clock::now()) {
    const WatchedWait wait;
    settled_.wait_until(lock, std::min(deadline_, now + kBeat));
    if (heartbeat_ != nullptr) heartbeat_->Beat();
  }
  if (aborted_) return absl::AbortedError("the epoch was ended while the step waited for masks");
  if (IsSettled()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(missing_.value_or(0), " masks of the step have not come"));
}

const RowMask& StepMasks::Of(Slot slot) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto row = rows_.find(slot);
  WEFT_CHECK(row != rows_.end() && row->second.has_value());
  return *row->second;
}

}  // namespace weft::shard
