#include "deploy/launcher/process_use.h"

#include "absl/strings/numbers.h"
#include "common/process_stat.h"

namespace weft::launcher {

double ProcessCpuSeconds(const std::string& pid) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(pid, &number)) return 0;
  const std::optional<ProcessStat> stat = ReadProcessStat(number);
  return stat.has_value() ? static_cast<double>(stat->cpu_us) / 1e6 : 0;
}

double ProcessPssMib(const std::string& pid) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(pid, &number)) return 0;
  return static_cast<double>(ProportionalBytes(number)) / (1 << 20);
}

}  // namespace weft::launcher
