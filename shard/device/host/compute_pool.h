// The compute threads of a CPU shard: the calling (device) thread and its helpers. Run() is one
// parallel region: its items are taken one by one from a shared counter by whoever is free, never
// dealt out in fixed halves, and the region ends when every taken item is done. A helper that the
// kernel has descheduled between two items therefore delays nobody; one descheduled inside an item
// does, and on a machine with busy neighbours that would cost more than the helper brings. So the
// pool measures what it waits for at the end of each region and, when the debt grows too large,
// runs without helpers for a while (back-off in pool_backoff.h).
//
// Waiting spins for kSpinUs, then sleeps in a futex. Run() is called by one thread only, is not
// re-entrant and does not allocate. Helpers run at a lower priority than the router's threads.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/thread.h"
#include "shard/device/host/pool_backoff.h"

namespace weft::shard {

// What limits the regions of a step: reading weights, which one core nearly does as fast as
// several, or computing.
enum class PoolWork : uint8_t { kReading, kComputing };

class ComputePool {
 public:
  // Longest busy wait of any thread.
  static constexpr int64_t kSpinUs = 20;
  static constexpr int kThreadsMax = 256;
  // Nice value of helpers: the router goes first.
  static constexpr int kNice = 1;

  // `threads` counts the caller, 1 .. kThreadsMax.
  explicit ComputePool(int threads);
  ~ComputePool();

  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(item, thread) once for every item in [0, items), on the caller (thread 0) and the
  // helpers, in any order and at the same time; returns when all calls have returned, and what they
  // wrote is then visible to the caller. `thread` < threads() indexes per-thread scratch. Bodies
  // neither throw nor call Run.
  using Body = absl::FunctionRef<void(uint32_t item, int thread)>;
  void Run(uint32_t items, Body body);

  // What the coming regions are limited by; called between regions.
  void SetWork(PoolWork work) { work_ = work; }

  // Counters since construction, for metrics. Any thread.
  uint64_t waited_us() const { return waited_us_.load(std::memory_order_relaxed); }
  uint64_t stalls() const { return stalls_.load(std::memory_order_relaxed); }
  uint64_t backoffs() const { return backoffs_.load(std::memory_order_relaxed); }

 private:
  // State that different threads write, each on its own cache line.
  struct alignas(64) Word {
    std::atomic<uint64_t> value{0};
  };
  struct alignas(64) Futex {
    std::atomic<uint32_t> value{0};
  };

  void HelperMain(int thread);
  // Takes one item of the current region; false when none is left.
  bool TakeItem(uint32_t* item);
  // Runs items until none is left; returns how many.
  uint32_t Drain(int thread);
  // Waits until helpers have reported `theirs` items and judges the wait.
  void WaitForHelpers(uint32_t theirs, uint32_t mine, int64_t start_us);
  void RunAlone(uint32_t items, Body body);

  // High half: number of the region; low half: items not yet taken. Taking an item is a
  // compare-and-swap on both, so a helper that slept through a region cannot take from the next one
  // by accident; and whoever has taken an item keeps the region, and thus body_, alive.
  Word tickets_;
  // Items finished in this region.
  Futex done_;
  // 1 while the caller sleeps in done_.
  Futex caller_sleeps_;
  // Helpers sleep on it; changed to wake them.
  Futex wake_;
  // 1 when a helper may sleep in wake_.
  Futex helpers_asleep_;
  const Body* body_ = nullptr;
  uint32_t items_ = 0;
  uint32_t generation_ = 0;
  std::atomic<bool> stop_{false};

  PoolWork work_ = PoolWork::kReading;
  // By PoolWork: what helpers bring differs, and so does when to rest them.
  PoolBackoff backoff_[2] = {PoolBackoff(PoolBackoff::kReading),
                             PoolBackoff(PoolBackoff::kComputing)};
  std::atomic<uint64_t> waited_us_{0};
  std::atomic<uint64_t> stalls_{0};
  std::atomic<uint64_t> backoffs_{0};
  std::vector<Thread> helpers_;
};

}  // namespace weft::shard
