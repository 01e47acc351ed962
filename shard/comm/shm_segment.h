// The shared memory in which the CPU ranks of one host meet for one epoch: a sealed memfd made by
// rank 0, found by the others through the token that Rendezvous hands out, which names it as
// "/proc/<pid>/fd/<n>". Everything in it that was written by another process is checked before
// use; sizes come from the own flags, never from the segment.
//
// Layout: ShmHeader, then 2 * world windows of window_bytes: parity 0 of every rank, then parity 1.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/limits.h"

namespace weft::shard {

// What all ranks of a group must agree on.
struct ShmShape {
  uint32_t world = 0;
  Epoch epoch = 0;
  // Largest count of one all-reduce.
  int64_t capacity_floats = 0;

  size_t window_bytes() const;
  size_t total_bytes() const;
};

// One cache line per rank, written by that rank (and by whoever aborts).
struct alignas(64) ShmRankWord {
  // Futex word: the rank's barrier generation in the low 31 bits; the top bit is set by Abort so
  // that a waiter about to sleep on the old value does not.
  std::atomic<uint32_t> arrived;
  // Ranks asleep on `arrived`: without any the rank saves the wake-up call.
  std::atomic<uint32_t> sleepers;
  // Process that took this rank; 0 = nobody yet.
  std::atomic<uint32_t> pid;
};

struct ShmHeader {
  uint64_t magic;
  Epoch epoch;
  uint32_t world;
  int64_t capacity_floats;
  // 0, or 1 + the rank that ended the epoch.
  alignas(64) std::atomic<uint32_t> aborted_by;
  ShmRankWord ranks[kWorldMax];
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Rank 0's hold on the memfd until every rank has mapped it. Closing it leaves mappings alone.
class ShmSegment {
 public:
  // Makes and reserves the memory. RESOURCE_EXHAUSTED or another status with the cause otherwise.
  static absl::StatusOr<ShmSegment> Create(const ShmShape& shape);
  ~ShmSegment();

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&& other) noexcept;

  // For JoinGroup on every rank of this host. Text, under 200 bytes.
  const std::string& token() const { return token_; }

 private:
  ShmSegment(int fd, std::string token) : fd_(fd), token_(std::move(token)) {}

  int fd_ = -1;
  std::string token_;
};

// A process's view of a segment.
class ShmMapping {
 public:
  // Opens the segment that `token` names and checks magic, epoch, world, sizes and seals.
  // INVALID_ARGUMENT for a token that is none, FAILED_PRECONDITION when they differ from `shape`,
  // NOT_FOUND when rank 0's process is gone.
  static absl::StatusOr<std::unique_ptr<ShmMapping>> Open(absl::string_view token,
                                                          const ShmShape& shape);
  ~ShmMapping();

  ShmMapping(const ShmMapping&) = delete;
  ShmMapping& operator=(const ShmMapping&) = delete;

  ShmHeader& header() { return *static_cast<ShmHeader*>(base_); }
  // Window of `rank` for the collectives of this parity; page-aligned.
  std::byte* window(Rank rank, uint32_t parity);

 private:
  ShmMapping(void* base, const ShmShape& shape) : base_(base), shape_(shape) {}

  void* base_;
  const ShmShape shape_;
};

}  // namespace weft::shard
