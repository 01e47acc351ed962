// The masks of one step: for each masked row the ids that it may sample, which the router sends
// behind the step because they depend on the token before. Shared by the RPC threads, which put
// them in as they come, and the device thread, which waits for all of them before it samples; made
// and aborted by the executor. Knows no wire format and no device.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/limits.h"
#include "shard/heartbeat.h"

namespace weft::shard {

// Bit id % 32 of word id / 32 is set where the id may be sampled. Without words every id may.
struct RowMask {
  std::vector<uint32_t> words;
};

class StepMasks {
 public:
  // `heartbeat`, which may be null, beats while Wait waits: masks are late when the router is, and
  // a device that waits for them is well. `wait`: how long after Expect masks may come.
  explicit StepMasks(Heartbeat* heartbeat = nullptr,
                     std::chrono::microseconds wait = std::chrono::microseconds(kMaskWaitUsMax))
      : heartbeat_(heartbeat), wait_(wait) {}
  StepMasks(const StepMasks&) = delete;
  StepMasks& operator=(const StepMasks&) = delete;

  // The slots of the step's masked rows, each once: the step has been prepared. INVALID_ARGUMENT
  // when a mask of another slot has come. Step thread, once.
  absl::Status Expect(absl::Span<const Slot> slots);
  // The mask of a row. ALREADY_EXISTS for a second one, INVALID_ARGUMENT for a slot that is not
  // expected, RESOURCE_EXHAUSTED for more than `rows_max` before anything is. RPC threads.
  absl::Status Put(Slot slot, RowMask mask, uint32_t rows_max);
  // Nobody waits for masks any more. Any thread.
  void Abort();

  // All expected masks are here, or those that are missing will not come in time any more. Any
  // thread, never blocks.
  bool Settled() const;
  // Waits for that. ABORTED after Abort, DEADLINE_EXCEEDED when masks are missing for too long
  // after Expect. Device thread.
  absl::Status Wait() const;
  // REQUIRES: Wait was OK, and `slot` is expected.
  const RowMask& Of(Slot slot) const;

 private:
  // Not the wall clock, which may jump.
  using Clock = std::chrono::steady_clock;

  bool IsSettled() const { return aborted_ || missing_ == size_t{0}; }

  Heartbeat* const heartbeat_;
  const std::chrono::microseconds wait_;
  // Not absl's: ThreadSanitizer cannot see inside a packaged library.
  mutable std::mutex mutex_;
  mutable std::condition_variable settled_;
  // By slot; empty until it comes. Before Expect those that came early.
  std::map<Slot, std::optional<RowMask>> rows_;
  // Of those expected; none before Expect.
  std::optional<size_t> missing_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool aborted_ = false;
};

}  // namespace weft::shard
