#include "router/shards/failure_policy.h"

#include <algorithm>
#include <string>

#include "common/log.h"

namespace weft::router {
namespace {

constexpr int64_t kRetryFirstUs = 50'000;
constexpr int64_t kRetryMaxUs = 2'000'000;
// Doublings after which the wait has long reached its maximum.
constexpr uint32_t kRetryDoublingsMax = 10;

}  // namespace

void FailurePolicy::AskRestart(Rank rank, uint64_t pid, RestartReason reason,
                               const absl::Status& why) {
  if (pid == 0) return;
  Count(rank, pid, reason);
  if (restart_pids_[rank] == pid) return;  // asked already, or known to be under way
  restart_pids_[rank] = pid;
  if (restarter_ == nullptr) return;
  WEFT_LOG_WARN("asking for a restart rank={} pid={}", first_rank_ + rank, pid);
  restarter_->Restart(rank, pid, std::string(why.message()));
}

void FailurePolicy::SetRestarting(Rank rank, uint64_t pid) {
  Count(rank, pid, RestartReason::kExit);
  restart_pids_[rank] = pid;
}

void FailurePolicy::OnReplaced(Rank rank, uint64_t pid, uint64_t new_pid) {
  Count(rank, pid, RestartReason::kExit);
  restart_pids_[rank] = 0;
  // In a container every process of a shard may have the same pid: the new one is yet to be
  // counted.
  if (new_pid == counted_pids_[rank]) counted_pids_[rank] = 0;
}

void FailurePolicy::Count(Rank rank, uint64_t pid, RestartReason reason) {
  if (pid == 0 || counted_pids_[rank] == pid) return;
  counted_pids_[rank] = pid;
  probe_->ShardRestarted(reason);
}

void FailurePolicy::OnAttemptFailed(int64_t now_us) {
  const int64_t wait_us = kRetryFirstUs << std::min(failed_attempts_++, kRetryDoublingsMax);
  next_attempt_us_ = now_us + std::min(wait_us, kRetryMaxUs);
}

void FailurePolicy::OnFormed(int64_t now_us) {
  failed_attempts_ = 0;
  if (lost_us_ > 0) probe_->Recovered(now_us - lost_us_);
  lost_us_ = 0;
  std::fill(restart_pids_.begin(), restart_pids_.end(), 0);
  // Without a supervisor a process that was taken for hung may be the one that serves again: its
  // end is yet to be counted. A supervisor that was asked ends it, and it is counted already.
  if (restarter_ == nullptr) std::fill(counted_pids_.begin(), counted_pids_.end(), 0);
}

}  // namespace weft::router
