#include "router/shards/vitals.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::router {
namespace {

// Answering Info costs CPU time too; work is at least this share of the time that passed.
constexpr double kWorkShare = 0.01;
// After this part of a time-out without an answer the process's own CPU time is watched.
constexpr int64_t kSilentShare = 5;

}  // namespace

std::optional<int64_t> ReadProcessCpuUs(uint64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // proc(5): the name in parentheses may hold blanks; utime and stime are the 12th and 13th words
  // after it, in clock ticks.
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(line).substr(end + 1), ' ', absl::SkipEmpty());
  int64_t user_ticks = 0;
  int64_t system_ticks = 0;
  if (words.size() < 13 || !absl::SimpleAtoi(words[11], &user_ticks) ||
      !absl::SimpleAtoi(words[12], &system_ticks)) {
    return std::nullopt;
  }
  return (user_ticks + system_ticks) * (1'000'000 / sysconf(_SC_CLK_TCK));
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

bool ShardVitals::ProcessHung(int64_t now_us, int64_t timeout_us, uint64_t pid,
                              const ProcessCpuReader* read_cpu) {
  const int64_t silent_us = now_us - process_alive_us_;
  if (silent_us < timeout_us / kSilentShare) {
    watched_.reset();
    return false;
  }
  if (read_cpu != nullptr) {
    const std::optional<int64_t> cpu_us = (*read_cpu)(pid);
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
