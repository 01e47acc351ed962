// The wish to stop an answer: given by Ctrl-C (interrupt.h), looked at and waited for by whoever
// works on the answer. One for the conversation, armed for each answer; any thread.

#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace weft::launcher {

class Stop {
 public:
  // What Request() calls besides, from its thread, while this lives: ends a call that waits. At
  // once when the wish is there already.
  class Hook {
   public:
    Hook(Stop& stop, std::function<void()> action);
    ~Hook();
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

   private:
    Stop& stop_;
  };

  // From here on a wish is heard, and none is there. Until Disarm().
  void Arm() ABSL_LOCKS_EXCLUDED(mutex_);
  void Disarm() ABSL_LOCKS_EXCLUDED(mutex_);
  // Without effect unless armed.
  void Request() ABSL_LOCKS_EXCLUDED(mutex_);
  bool requested() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until it is requested or `wait` has passed; whether it is.
  bool WaitFor(absl::Duration wait) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;
  bool requested_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> action_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::launcher
