#include "shard/device/host/compute_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <string>

#include "common/check.h"

namespace weft::shard {
namespace {

int64_t NowUs() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until `ready()` or for ComputePool::kSpinUs; returns ready().
template <typename Ready>
bool Spin(Ready ready) {
  constexpr int kChecksPerClockRead = 32;
  int64_t deadline_us = 0;
  while (true) {
    for (int i = 0; i < kChecksPerClockRead; ++i) {
      if (ready()) return true;
      CpuRelax();
    }
    const int64_t now_us = NowUs();
    if (deadline_us == 0) {
      deadline_us = now_us + ComputePool::kSpinUs;
    } else if (now_us >= deadline_us) {
      return ready();
    }
  }
}

constexpr uint64_t kLeftMask = 0xffffffffu;
// A wait below this is the ordinary end of a region.
constexpr int64_t kStallUs = 100;

}  // namespace

ComputePool::ComputePool(int threads) {
  WEFT_CHECK_GE(threads, 1);
  WEFT_CHECK_LE(threads, kThreadsMax);
  helpers_.reserve(static_cast<size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) {
    helpers_.emplace_back(
        "compute-" + std::to_string(thread), [this, thread] { HelperMain(thread); }, kNice);
  }
}

ComputePool::~ComputePool() {
  stop_.store(true);
  wake_.value.fetch_add(1);
  FutexWake(&wake_.value);
  for (Thread& helper : helpers_) helper.Join();
}

bool ComputePool::TakeItem(uint32_t* item) {
  uint64_t word = tickets_.value.load(std::memory_order_acquire);
  while ((word & kLeftMask) != 0) {
    if (tickets_.value.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      *item = static_cast<uint32_t>(word & kLeftMask) - 1;
      return true;
    }
  }
  return false;
}

uint32_t ComputePool::Drain(int thread) {
  uint32_t done = 0;
  uint32_t left = 0;
  while (TakeItem(&left)) {
    // The region lives until this item is reported, so body_ and items_ are stable here. Items are
    // counted down but run upwards: memory is read forwards.
    (*body_)(items_ - 1 - left, thread);
    ++done;
  }
  return done;
}

void ComputePool::HelperMain(int thread) {
  while (!stop_.load()) {
    if (const uint32_t done = Drain(thread); done > 0) {
      done_.value.fetch_add(done);
      if (caller_sleeps_.value.load() != 0) FutexWake(&done_.value);
    }
    auto work = [this] {
      return (tickets_.value.load(std::memory_order_acquire) & kLeftMask) != 0 ||
             stop_.load(std::memory_order_relaxed);
    };
    if (Spin(work)) continue;
    // Announce the sleep, then look once more; Run publishes work, then looks for sleepers.
    const uint32_t seen = wake_.value.load();
    helpers_asleep_.value.store(1);
    if ((tickets_.value.load() & kLeftMask) != 0 || stop_.load()) continue;
    FutexWait(&wake_.value, seen);
  }
}

void ComputePool::RunAlone(uint32_t items, Body body) {
  for (uint32_t item = 0; item < items; ++item) body(item, 0);
}

void ComputePool::Run(uint32_t items, Body body) {
  if (helpers_.empty() || items <= 1) return RunAlone(items, body);
  const int64_t start_us = NowUs();
  if (!backoff_[static_cast<int>(work_)].HelpersWanted(start_us)) return RunAlone(items, body);

  body_ = &body;
  items_ = items;
  done_.value.store(0, std::memory_order_relaxed);
  ++generation_;
  tickets_.value.store(uint64_t{generation_} << 32 | items);
  if (helpers_asleep_.value.load() != 0) {
    helpers_asleep_.value.store(0);
    wake_.value.fetch_add(1);
    FutexWake(&wake_.value);
  }

  const uint32_t mine = Drain(0);
  const uint32_t theirs = items - mine;
  auto finished = [this, theirs] { return done_.value.load(std::memory_order_acquire) == theirs; };
  // The usual case: the others end within a few hundred nanoseconds.
  for (int i = 0; i < 64; ++i) {
    if (finished()) return;
    CpuRelax();
  }
  WaitForHelpers(theirs, mine, start_us);
}

void ComputePool::WaitForHelpers(uint32_t theirs, uint32_t mine, int64_t start_us) {
  const int64_t wait_start_us = NowUs();
  auto finished = [this, theirs] { return done_.value.load(std::memory_order_acquire) == theirs; };
  if (!Spin(finished)) {
    caller_sleeps_.value.store(1);
    for (uint32_t seen = done_.value.load(); seen != theirs; seen = done_.value.load()) {
      FutexWait(&done_.value, seen);
    }
    caller_sleeps_.value.store(0);
  }
  const int64_t now_us = NowUs();
  const int64_t wait_us = now_us - wait_start_us;
  waited_us_.fetch_add(static_cast<uint64_t>(wait_us), std::memory_order_relaxed);
  // Waiting for an item that is as long as the caller's own is no stall.
  const int64_t item_us = (wait_start_us - start_us) / (mine + 1);
  const int64_t stall_us = wait_us - 2 * item_us;
  if (stall_us < kStallUs) return;
  stalls_.fetch_add(1, std::memory_order_relaxed);
  if (backoff_[static_cast<int>(work_)].OnStall(now_us, stall_us))
    backoffs_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace weft::shard
