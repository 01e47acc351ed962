#include "common/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <utility>

namespace weft {

Thread::Thread(const std::string& name, absl::AnyInvocable<void()> body, int nice)
    : thread_([name, nice, body = std::move(body)]() mutable {
        SetThreadName(name);
        // Linux keeps a nice value per thread; failing to lower priority costs only fairness.
        if (nice != 0)
          (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) {
  Join();
  thread_ = std::move(other.thread_);
  return *this;
}

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

void SetThreadName(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

int64_t ProcessCpuUs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

}  // namespace weft
