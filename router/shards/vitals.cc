#include "router/shards/vitals.h"

#include <algorithm>

#include "common/process_stat.h"

namespace weft::router {
namespace {

// Answering Info costs CPU time too; work is at least this share of the time that passed.
constexpr double kWorkShare = 0.01;
// After this part of a time-out without an answer the process's own CPU time is watched.
constexpr int64_t kSilentShare = 5;

}  // namespace

std::optional<int64_t> ReadShardCpuUs(const ShardProcess& process) {
  if (process.pid_namespace == 0 || process.pid_namespace != PidNamespace()) return std::nullopt;
  const std::optional<ProcessStat> stat = ReadProcessStat(process.pid);
  if (!stat.has_value() || stat->start_ticks != process.start_ticks) return std::nullopt;
  return stat->cpu_us;
}

void ShardVitals::Restart(int64_t now_us) {
  process_alive_us_ = now_us;
  device_alive_us_ = now_us;
  cpu_seen_us_ = now_us;
  cpu_us_ = 0;
  watched_.reset();
}

void ShardVitals::OnInfo(const weft::shard::v1::InfoResponse& info, int64_t now_us) {
  process_alive_us_ = now_us;
  const int64_t heartbeat_us = now_us - static_cast<int64_t>(info.heartbeat_age_us());
  device_alive_us_ = std::max(device_alive_us_, heartbeat_us);
  const int64_t cpu_us = static_cast<int64_t>(info.cpu_time_us());
  const bool first = cpu_us_ == 0 || cpu_us < cpu_us_;
  const double worked_us = static_cast<double>(cpu_us - cpu_us_);
  if (first || worked_us >= kWorkShare * static_cast<double>(now_us - cpu_seen_us_)) {
    cpu_us_ = cpu_us;
    cpu_seen_us_ = now_us;
  }
}

void ShardVitals::OnStep(int64_t now_us) {
  process_alive_us_ = now_us;
  device_alive_us_ = now_us;
}

bool ShardVitals::ProcessHung(int64_t now_us, int64_t timeout_us, const ShardProcess& process,
                              const ProcessCpuReader* read_cpu) {
  const int64_t silent_us = now_us - process_alive_us_;
  if (silent_us < timeout_us / kSilentShare) {
    watched_.reset();
    return false;
  }
  if (read_cpu != nullptr) {
    const std::optional<int64_t> cpu_us = (*read_cpu)(process);
    if (cpu_us.has_value() && !watched_.has_value()) watched_ = Watched{*cpu_us, now_us};
    if (cpu_us.has_value() && static_cast<double>(*cpu_us - watched_->cpu_us) >=
                                  kWorkShare * static_cast<double>(timeout_us)) {
      // Slow, not hung: it gets another time-out.
      watched_ = Watched{*cpu_us, now_us};
      process_alive_us_ = now_us - timeout_us / kSilentShare;
      return false;
    }
  }
  return silent_us >= timeout_us;
}

bool ShardVitals::DeviceHung(int64_t now_us, int64_t timeout_us, int64_t owes_since_us,
                             bool works_on_cpu) const {
  if (owes_since_us == 0) return false;
  int64_t alive_us = std::max(device_alive_us_, owes_since_us);
  if (works_on_cpu) alive_us = std::max(alive_us, cpu_seen_us_);
  return now_us - alive_us >= timeout_us;
}

}  // namespace weft::router
