#include "common/watchdog.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/thread.h"
#include "common/thread_watch.h"

namespace weft {
namespace {

constexpr int kFramesMax = 48;
// The handler's own frame and the kernel's trampoline.
constexpr int kFramesOfHandler = 2;
constexpr absl::Duration kLookMax = absl::Seconds(1);
// A thread that cannot answer a signal for so long sleeps in the kernel without waking.
constexpr int64_t kStackWaitNs = 500'000'000;

// -- The list of threads -------------------------------------------------------------------------

struct Entry {
  std::string name;
  pthread_t thread = {};
  ThreadWatch watch;
  // -- The watchdog's
  // The work that was spoken of.
  int64_t reported_us = 0;
  // CPU time when it was last looked at, and the end of the last look at which it had grown.
  int64_t cpu_us = 0;
  int64_t worked_us = 0;
};

// As the log, it lives as long as the process.
struct Threads {
  absl::Mutex mutex;
  std::list<Entry> entries ABSL_GUARDED_BY(mutex);
};

Threads& AllThreads() {
  static Threads* const threads = new Threads;
  return *threads;
}

std::atomic<bool> watching{false};
thread_local Entry* this_entry = nullptr;

// -- A thread's stack, written down by itself ----------------------------------------------------

// One at a time: the watchdog waits for it.
struct Captured {
  std::atomic<bool> wanted{false};
  std::array<void*, kFramesMax> frames;
  std::atomic<int> count{0};
  sem_t written;
};

Captured& Capture() {
  static Captured* const captured = [] {
    auto* const made = new Captured;
    WEFT_CHECK(sem_init(&made->written, 0, 0) == 0);
    return made;
  }();
  return *captured;
}

int StackSignal() { return SIGRTMIN + 4; }

// In the stuck thread: calls nothing that takes memory or a lock. backtrace() loads its unwinder
// with its first call, which Start makes.
void WriteStack(int) {
  const int error = errno;
  Captured& captured = Capture();
  if (captured.wanted.exchange(false)) {
    captured.count.store(backtrace(captured.frames.data(), kFramesMax));
    sem_post(&captured.written);
  }
  errno = error;
}

std::string FrameText(void* frame) {
  char name[512];
  // The address is where the call returns to, which may be behind its function's end.
  void* const call = static_cast<char*>(frame) - 1;
  if (absl::Symbolize(call, name, sizeof(name))) return name;
  Dl_info info{};
  if (dladdr(call, &info) != 0 && info.dli_fname != nullptr) {
    const absl::string_view path = info.dli_fname;
    const auto offset = static_cast<char*>(frame) - static_cast<char*>(info.dli_fbase);
    return absl::StrCat(path.substr(path.rfind('/') + 1), "+0x", absl::Hex(offset));
  }
  return absl::StrCat("0x", absl::Hex(reinterpret_cast<uintptr_t>(frame)));
}

// Of a thread that the list holds, which cannot end meanwhile.
std::string StackOf(pthread_t thread) {
  Captured& captured = Capture();
  while (sem_trywait(&captured.written) == 0) {  // one that came too late
  }
  captured.wanted.store(true);
  if (pthread_kill(thread, StackSignal()) != 0) return "unknown";
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += kStackWaitNs;
  until.tv_sec += until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  int result = 0;
  while ((result = sem_timedwait(&captured.written, &until)) != 0 && errno == EINTR) {
  }
  if (result != 0) {
    captured.wanted.store(false);
    return "unknown: it does not answer signals";
  }
  std::vector<std::string> lines;
  for (int i = kFramesOfHandler; i < captured.count.load(); ++i) {
    lines.push_back(FrameText(captured.frames[static_cast<size_t>(i)]));
  }
  return absl::StrJoin(lines, " < ");
}

int64_t ThreadCpuUs(pthread_t thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

// -- The watchdog --------------------------------------------------------------------------------

class WatchdogThread : public Watchdog {
 public:
  explicit WatchdogThread(WatchdogOptions options)
      : options_(std::move(options)),
        look_(std::min(options_.limit / 4, kLookMax)),
        thread_("watchdog", [this] { Run(); }) {}

  ~WatchdogThread() override {
    stop_.Notify();
    thread_.Join();
    watching.store(false);
  }

 private:
  void Run() {
    while (!stop_.WaitForNotificationWithTimeout(look_)) Look(MonotonicClock().NowUs());
  }

  void Look(int64_t now_us) {
    // A process that was stopped, or a machine that slept, has stuck threads no more than this one.
    if (last_look_us_ > 0 && now_us - last_look_us_ > absl::ToInt64Microseconds(4 * look_)) {
      awake_us_ = now_us;
    }
    last_look_us_ = now_us;
    std::vector<std::string> stuck;
    {
      absl::MutexLock lock(&AllThreads().mutex);
      for (Entry& entry : AllThreads().entries) {
        if (LookAt(entry, now_us)) stuck.push_back(entry.name);
      }
    }
    for (const std::string& name : stuck) {
      if (options_.on_stuck != nullptr) options_.on_stuck(name);
    }
  }

  // True when it is found to be stuck.
  bool LookAt(Entry& entry, int64_t now_us) {
    const int64_t busy_us = entry.watch.busy_since_us.load(std::memory_order_relaxed);
    if (entry.reported_us != 0 && busy_us != entry.reported_us) {
      LogFields("a thread that was stuck goes on", {{"thread", entry.name}});
      entry.reported_us = 0;
    }
    if (busy_us == 0 || busy_us == entry.reported_us) return false;
    int64_t since_us = std::max(busy_us, awake_us_);
    if (entry.watch.computes.load(std::memory_order_relaxed)) {
      const int64_t cpu_us = ThreadCpuUs(entry.thread);
      // A tenth of a core: what waits and looks now and then has less.
      const int64_t grown_us = cpu_us - entry.cpu_us;
      if (grown_us > absl::ToInt64Microseconds(look_) / 10) entry.worked_us = now_us;
      entry.cpu_us = cpu_us;
      since_us = std::max(since_us, entry.worked_us);
    }
    const int64_t late_us = now_us - since_us;
    if (late_us < absl::ToInt64Microseconds(options_.limit)) return false;
    entry.reported_us = busy_us;
    LogFields("a thread is stuck",
              {{"thread", entry.name},
               {"stuck_s", static_cast<double>(late_us / 1000) * 1e-3},
               {"stack", StackOf(entry.thread)}},
              spdlog::level::err);
    return true;
  }

  const WatchdogOptions options_;
  const absl::Duration look_;
  int64_t last_look_us_ = 0;
  // What came before is nobody's fault.
  int64_t awake_us_ = 0;
  absl::Notification stop_;
  Thread thread_;
};

}  // namespace

std::unique_ptr<Watchdog> Watchdog::Start(WatchdogOptions options) {
  if (options.limit <= absl::ZeroDuration()) return nullptr;
  void* frame = nullptr;
  (void)backtrace(&frame, 1);
  Capture();
  struct sigaction action {};
  action.sa_handler = WriteStack;
  action.sa_flags = SA_RESTART;
  WEFT_CHECK(sigaction(StackSignal(), &action, nullptr) == 0);
  WEFT_CHECK(!watching.exchange(true));
  return std::make_unique<WatchdogThread>(std::move(options));
}

// -- Threads -------------------------------------------------------------------------------------

WatchedThread::WatchedThread(const std::string& name) {
  Threads& threads = AllThreads();
  absl::MutexLock lock(&threads.mutex);
  Entry& entry = threads.entries.emplace_back();
  entry.name = name;
  entry.thread = pthread_self();
  this_entry = &entry;
}

WatchedThread::~WatchedThread() {
  Threads& threads = AllThreads();
  absl::MutexLock lock(&threads.mutex);
  threads.entries.remove_if([](const Entry& entry) { return &entry == this_entry; });
  this_entry = nullptr;
}

ThreadWatch* ThisThreadWatch() {
  if (this_entry == nullptr || !watching.load(std::memory_order_relaxed)) return nullptr;
  return &this_entry->watch;
}

void WatchedWait::Return() {
  watch_->busy_since_us.store(MonotonicClock().NowUs(), std::memory_order_relaxed);
}

void ComeRound() {
  if (ThreadWatch* const watch = ThisThreadWatch()) {
    watch->busy_since_us.store(MonotonicClock().NowUs(), std::memory_order_relaxed);
  }
}

void WatchAsComputing() {
  if (this_entry != nullptr) {
    this_entry->watch.computes.store(true, std::memory_order_relaxed);
  }
}

void StopWatching() {
  if (ThreadWatch* const watch = ThisThreadWatch()) {
    watch->busy_since_us.store(0, std::memory_order_relaxed);
  }
}

}  // namespace weft
