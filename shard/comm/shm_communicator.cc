#include "shard/comm/shm_communicator.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace weft::shard {
namespace {

constexpr uint32_t kAbortBit = 0x8000'0000u;
constexpr uint32_t kGenerationMask = 0x7fff'ffffu;
// Two ranks may share their cores with a router: spin no longer than a wake-up costs.
constexpr int64_t kSpinNs = 20'000;
// Looks at the clock once in so many polls.
constexpr int kPollsPerClock = 16;
// A sleeping wait shows life and re-checks everything this often.
constexpr int64_t kSliceNs = 50'000'000;
// Floats summed at a time: the partial sum stays in the first-level cache.
constexpr int64_t kTileFloats = 1024;

int64_t NowNs() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The words are shared between processes, so never FUTEX_PRIVATE_FLAG. Spurious returns are fine.
void FutexWait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns) {
  timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Add(float* __restrict sum, const float* __restrict values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmCommunicator>> ShmCommunicator::Open(absl::string_view token,
                                                                       const ShmShape& shape,
                                                                       Rank rank,
                                                                       absl::Duration wait_timeout,
                                                                       Heartbeat* heartbeat) {
  WEFT_CHECK_LE(shape.world, kWorldMax);
  WEFT_CHECK_LT(rank, shape.world);
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ShmMapping> mapping, ShmMapping::Open(token, shape));
  uint32_t nobody = 0;
  if (!mapping->header().ranks[rank].pid.compare_exchange_strong(nobody,
                                                                 static_cast<uint32_t>(getpid()))) {
    return absl::AlreadyExistsError(
        absl::StrCat("rank ", rank, " of epoch ", shape.epoch, " is held by process ", nobody));
  }
  return std::unique_ptr<ShmCommunicator>(
      new ShmCommunicator(std::move(mapping), shape, rank, wait_timeout, heartbeat));
}

ShmCommunicator::ShmCommunicator(std::unique_ptr<ShmMapping> mapping, const ShmShape& shape,
                                 Rank rank, absl::Duration wait_timeout, Heartbeat* heartbeat)
    : mapping_(std::move(mapping)),
      header_(mapping_->header()),
      shape_(shape),
      rank_(rank),
      wait_timeout_(wait_timeout),
      heartbeat_(heartbeat) {}

absl::Status ShmCommunicator::Meet(absl::Duration timeout) { return Barrier(timeout); }

float* ShmCommunicator::Stage(int64_t count) {
  WEFT_CHECK_GE(count, 0);
  WEFT_CHECK_LE(count, shape_.capacity_floats);
  return reinterpret_cast<float*>(mapping_->window(rank_, generation_ & 1));
}

absl::Status ShmCommunicator::AllReduceAdd(float* target, int64_t count) {
  WEFT_CHECK_GE(count, 0);
  WEFT_CHECK_LE(count, shape_.capacity_floats);
  const uint32_t parity = generation_ & 1;
  WEFT_RETURN_IF_ERROR(Barrier(wait_timeout_));
  alignas(64) float sum[kTileFloats];
  for (int64_t begin = 0; begin < count; begin += kTileFloats) {
    const int64_t floats = std::min(kTileFloats, count - begin);
    const auto part = [&](Rank rank) {
      return reinterpret_cast<const float*>(mapping_->window(rank, parity)) + begin;
    };
    std::memcpy(sum, part(0), static_cast<size_t>(floats) * sizeof(float));
    for (Rank rank = 1; rank < shape_.world; ++rank) Add(sum, part(rank), floats);
    Add(target + begin, sum, floats);
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::AllGather(const void* mine, size_t bytes, void* all) {
  const auto* from = static_cast<const std::byte*>(mine);
  auto* to = static_cast<std::byte*>(all);
  for (size_t begin = 0; begin < bytes; begin += shape_.window_bytes()) {
    const size_t piece = std::min(shape_.window_bytes(), bytes - begin);
    const uint32_t parity = generation_ & 1;
    std::memcpy(mapping_->window(rank_, parity), from + begin, piece);
    WEFT_RETURN_IF_ERROR(Barrier(wait_timeout_));
    for (Rank rank = 0; rank < shape_.world; ++rank) {
      std::memcpy(to + rank * bytes + begin, mapping_->window(rank, parity), piece);
    }
  }
  return absl::OkStatus();
}

void ShmCommunicator::Abort() {
  uint32_t nobody = 0;
  header_.aborted_by.compare_exchange_strong(nobody, 1 + rank_);
  // The bit changes every futex word, so that a rank that read the word before the line above and
  // goes to sleep after it does not sleep. A rank that arrives and so clears its bit wakes the
  // sleepers itself.
  for (Rank rank = 0; rank < shape_.world; ++rank) {
    header_.ranks[rank].arrived.fetch_or(kAbortBit);
    FutexWakeAll(header_.ranks[rank].arrived);
  }
}

absl::Status ShmCommunicator::Barrier(absl::Duration timeout) {
  if (header_.aborted_by.load() != 0) return AbortedStatus();
  generation_ = (generation_ + 1) & kGenerationMask;
  ShmRankWord& own = header_.ranks[rank_];
  // Sequentially consistent, as is the sleeper's count: either this rank sees the sleeper or the
  // sleeper sees the arrival.
  own.arrived.store(generation_);
  if (own.sleepers.load() != 0) FutexWakeAll(own.arrived);

  const int64_t begin_ns = NowNs();
  const int64_t deadline_ns = begin_ns + absl::ToInt64Nanoseconds(timeout);
  bool waited = false;
  for (Rank peer = 0; peer < shape_.world; ++peer) {
    if (HasArrived(header_.ranks[peer].arrived.load())) continue;
    waited = true;
    WEFT_RETURN_IF_ERROR(WaitFor(peer, deadline_ns));
  }
  if (waited) {
    waited_us_.fetch_add(static_cast<uint64_t>((NowNs() - begin_ns + 500) / 1000),
                         std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::Status ShmCommunicator::WaitFor(Rank peer, int64_t deadline_ns) {
  ShmRankWord& word = header_.ranks[peer];
  const int64_t spin_end_ns = NowNs() + kSpinNs;
  for (int polls = 1;; ++polls) {
    if (HasArrived(word.arrived.load(std::memory_order_acquire))) return absl::OkStatus();
    CpuRelax();
    if (polls % kPollsPerClock == 0 && NowNs() >= spin_end_ns) break;
  }
  for (;;) {
    word.sleepers.fetch_add(1);
    const uint32_t value = word.arrived.load();
    const int64_t left_ns = deadline_ns - NowNs();
    const bool aborted = header_.aborted_by.load() != 0;
    if (!HasArrived(value) && !aborted && left_ns > 0) {
      FutexWait(word.arrived, value, std::min(left_ns, kSliceNs));
    }
    word.sleepers.fetch_sub(1);
    if (HasArrived(word.arrived.load())) return absl::OkStatus();
    if (header_.aborted_by.load() != 0) return AbortedStatus();
    if (heartbeat_ != nullptr) heartbeat_->Beat();
    if (left_ns <= 0) break;
  }
  const uint32_t pid = word.pid.load();
  Abort();
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank_, " gave up waiting for rank ", peer, " (process ",
      pid == 0 ? std::string("never joined") : absl::StrCat(pid), ") in epoch ", shape_.epoch));
}

// A peer is at most one barrier ahead: it cannot pass the next one without this rank.
bool ShmCommunicator::HasArrived(uint32_t word) const {
  return ((word - generation_) & kGenerationMask) <= 1;
}

absl::Status ShmCommunicator::AbortedStatus() const {
  return absl::AbortedError(
      absl::StrCat("epoch ", shape_.epoch, " was ended by rank ", header_.aborted_by.load() - 1));
}

}  // namespace weft::shard
