#include "common/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/watchdog.h"

namespace weft {

namespace {

absl::Status NoThread(const std::string& name, const std::system_error& error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot start the thread \"", name, "\": ", error.code().message(),
      "; raise the limit of processes and threads (ulimit -u, docker --pids-limit, TasksMax)"));
}

}  // namespace

absl::StatusOr<Thread> Thread::Start(const std::string& name, absl::AnyInvocable<void()> body,
                                     int nice) {
  Thread out;
  // The library reports by an exception; this is the edge where it becomes a Status.
  try {
    out.thread_ = std::thread([name, nice, body = std::move(body)]() mutable {
      SetThreadName(name);
      // Linux keeps a nice value per thread; failing to lower priority costs only fairness.
      if (nice != 0) (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
      const WatchedThread watched(name);
      body();
    });
  } catch (const std::system_error& error) {
    return NoThread(name, error);
  }
  return out;
}

Thread::Thread(const std::string& name, absl::AnyInvocable<void()> body, int nice) {
  absl::StatusOr<Thread> started = Start(name, std::move(body), nice);
  if (!started.ok()) {
    LogLastWords(started.status().message());
    std::_Exit(kExitStartup);
  }
  *this = *std::move(started);
}

absl::Status CheckThreadsLeft(uint32_t count) {
  absl::Notification end;
  absl::Status status;
  std::vector<Thread> threads;
  while (status.ok() && threads.size() < count) {
    absl::StatusOr<Thread> thread = Thread::Start("check", [&end] { end.WaitForNotification(); });
    status = thread.status();
    if (thread.ok()) threads.push_back(*std::move(thread));
  }
  end.Notify();
  for (Thread& thread : threads) thread.Join();
  return status;
}

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
