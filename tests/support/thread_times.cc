#include "tests/support/thread_times.h"

#include <filesystem>
#include <fstream>

namespace weft::testing {

std::map<std::string, ThreadTimes> ThreadTimesByName() {
  std::map<std::string, ThreadTimes> times;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream name_file(task.path() / "comm");
    std::ifstream time_file(task.path() / "schedstat");
    std::string name;
    double run_ns = 0;
    double waited_ns = 0;
    if (!std::getline(name_file, name) || !(time_file >> run_ns >> waited_ns)) continue;
    times[name].cpu_us += run_ns / 1000;
    times[name].waited_us += waited_ns / 1000;
  }
  return times;
}

}  // namespace weft::testing
