#include "deploy/launcher/chat/stop.h"

#include <utility>

namespace weft::launcher {

Stop::Hook::Hook(Stop& stop, std::function<void()> action) : stop_(stop) {
  absl::MutexLock lock(&stop_.mutex_);
  if (stop_.requested_) action();
  stop_.action_ = std::move(action);
}

Stop::Hook::~Hook() {
  absl::MutexLock lock(&stop_.mutex_);
  stop_.action_ = nullptr;
}

void Stop::Arm() {
  absl::MutexLock lock(&mutex_);
  armed_ = true;
  requested_ = false;
}

void Stop::Disarm() {
  absl::MutexLock lock(&mutex_);
  armed_ = false;
}

void Stop::Request() {
  absl::MutexLock lock(&mutex_);
  if (!armed_) return;
  requested_ = true;
  if (action_) action_();
}

bool Stop::requested() const {
  absl::MutexLock lock(&mutex_);
  return requested_;
}

bool Stop::WaitFor(absl::Duration wait) const {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&requested_), wait);
  return requested_;
}

}  // namespace weft::launcher
