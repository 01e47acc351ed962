// The watchdog names a thread that does not come round, once, with the function it stands in; and
// is silent about those that wait, that compute, or that have ended.

#include "common/watchdog.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "absl/base/attributes.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/bounded_queue.h"
#include "common/thread.h"
#include "common/thread_watch.h"
#include "tests/common/log_lines.h"

namespace weft {
namespace {

constexpr absl::Duration kLimit = absl::Milliseconds(80);
constexpr absl::Duration kPatience = absl::Seconds(20);

// What was found, by thread.
class Findings {
 public:
  WatchdogOptions Options() {
    WatchdogOptions options;
    options.limit = kLimit;
    options.on_stuck = [this](const std::string& name) {
      absl::MutexLock lock(&mutex_);
      ++found_[name];
    };
    return options;
  }
  int Of(const std::string& name) {
    absl::MutexLock lock(&mutex_);
    return found_[name];
  }
  bool WaitFor(const std::string& name, int count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return found_[name] >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, int> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

// Outside of the unnamed namespace and not to be inlined: its name is looked for in a stack.
ABSL_ATTRIBUTE_NOINLINE void HoldsTheThreadFast(absl::Notification& until) {
  until.WaitForNotification();
  ABSL_BLOCK_TAIL_CALL_OPTIMIZATION();
}

TEST_CASE("A thread that does not come back from its work is named once, with where it stands",
          "[watchdog]") {
  const test::LogLines log;
  Findings findings;
  const std::unique_ptr<Watchdog> watchdog = Watchdog::Start(findings.Options());
  absl::Notification first;
  absl::Notification second;
  BoundedQueue<absl::Notification*> queue(4);
  Thread idle("idle", [] {
    const WatchedWait wait;
    absl::Notification().WaitForNotificationWithTimeout(20 * kLimit);
  });
  Thread thread("worker", [&queue] {
    while (auto job = queue.Pop()) HoldsTheThreadFast(**job);
  });
  absl::Notification* jobs[] = {&first, &second};
  REQUIRE(queue.TryPush(std::move(jobs[0])));
  REQUIRE(findings.WaitFor("worker", 1));
  // Much later it is still the same fault.
  idle.Join();
  CHECK(findings.Of("worker") == 1);
  first.Notify();
  REQUIRE(queue.TryPush(std::move(jobs[1])));
  REQUIRE(findings.WaitFor("worker", 2));
  second.Notify();
  queue.Close();
  thread.Join();
  CHECK(findings.Of("idle") == 0);
  // The names of functions are there where the program has them.
  CHECK(log.Count("a thread is stuck thread=worker") == 2);
  CHECK(log.Count("HoldsTheThreadFast") == 2);
  CHECK(log.Count("a thread that was stuck goes on thread=worker") >= 1);
}

TEST_CASE("Where CPU time is life, a thread may be long at work, but not asleep", "[watchdog]") {
  Findings findings;
  const std::unique_ptr<Watchdog> watchdog = Watchdog::Start(findings.Options());
  absl::Notification end;
  std::atomic<bool> computed{false};
  Thread sleeper("asleep", [&end] {
    WatchAsComputing();
    ComeRound();
    end.WaitForNotification();
  });
  Thread computer("computes", [&computed] {
    WatchAsComputing();
    ComeRound();
    const absl::Time until = absl::Now() + 6 * kLimit;
    while (absl::Now() < until) {
    }
    StopWatching();
    computed.store(true);
  });
  CHECK(findings.WaitFor("asleep", 1));
  computer.Join();
  CHECK(computed.load());
  CHECK(findings.Of("computes") == 0);
  end.Notify();
}

TEST_CASE("Nothing is expected of a thread before its first wait, nor after it stops being watched",
          "[watchdog]") {
  Findings findings;
  const std::unique_ptr<Watchdog> watchdog = Watchdog::Start(findings.Options());
  absl::Notification end;
  Thread loads("loads", [&end] { end.WaitForNotification(); });
  Thread meets("meets", [&end] {
    ComeRound();
    StopWatching();
    end.WaitForNotification();
  });
  Thread late("late", [&end] {
    ComeRound();
    end.WaitForNotification();
  });
  // By then the others would have been found too.
  CHECK(findings.WaitFor("late", 1));
  CHECK(findings.Of("loads") == 0);
  CHECK(findings.Of("meets") == 0);
  end.Notify();
}

TEST_CASE("A watchdog of no time is none", "[watchdog]") {
  WatchdogOptions options;
  options.limit = absl::ZeroDuration();
  CHECK(Watchdog::Start(options) == nullptr);
  CHECK(ThisThreadWatch() == nullptr);
}

}  // namespace weft
