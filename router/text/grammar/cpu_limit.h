// Ends calls into the grammar library that take too much of a CPU. Made by a GrammarEngine; its
// thread looks at the calls that run, every few milliseconds while there are any, and sleeps
// otherwise. What counts is the CPU time of the calling thread, so that a busy machine ends
// nothing.

#pragma once

#include <pthread.h>
#include <ctime>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/thread.h"

struct WeftCancel;  // router/text/ffi/weft_text.h

namespace weft::router {

class CpuLimit {
 public:
  explicit CpuLimit(absl::Duration cpu_max);
  ~CpuLimit();

  // One call: from here to the end of the scope the calling thread may use so much CPU time as the
  // limit says; beyond it `cancel` is set. Any thread.
  class Call {
   public:
    Call(CpuLimit& limit, const WeftCancel* cancel);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class CpuLimit;
    CpuLimit& limit_;
    const WeftCancel* const cancel_;
    clockid_t clock_ = 0;
    int64_t end_ns_ = 0;
    std::list<Call*>::iterator place_;
  };

 private:
  void Run();

  const int64_t cpu_ns_max_;
  absl::Mutex mutex_;
  std::list<Call*> calls_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace weft::router
