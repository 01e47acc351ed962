#include "tests/shard/device/cpu/machine_load.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "common/thread.h"

namespace weft::shard {

MachineLoad::MachineLoad(pid_t child) : child_(child), start_(Take()) {}

MachineLoad::Sample MachineLoad::Take() const {
  const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  Sample sample;
  // cpu user nice system idle iowait irq softirq steal: all but idle and iowait is busy.
  std::ifstream stat("/proc/stat");
  std::string label;
  stat >> label;
  for (int field = 0; field < 8; ++field) {
    double ticks = 0;
    stat >> ticks;
    sample.total_s += ticks / ticks_per_s;
    if (field != 3 && field != 4) sample.busy_s += ticks / ticks_per_s;
  }
  sample.own_s = static_cast<double>(ProcessCpuUs()) / 1e6;
  if (child_ != 0) {
    std::ifstream child("/proc/" + std::to_string(child_) + "/stat");
    std::string line;
    std::getline(child, line);
    // utime and stime are the 12th and 13th fields after the name in parentheses.
    std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    sample.own_s += (user + system) / ticks_per_s;
  }
  return sample;
}

double MachineLoad::OthersShare() const {
  const Sample now = Take();
  const double total_s = now.total_s - start_.total_s;
  if (total_s <= 0) return 0;
  const double others_s = (now.busy_s - start_.busy_s) - (now.own_s - start_.own_s);
  return std::max(0.0, others_s / total_s);
}

}  // namespace weft::shard
