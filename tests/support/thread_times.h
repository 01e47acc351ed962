// CPU time of this process's threads by name, and how long they waited for a CPU, from
// /proc/self/task/*/schedstat: what a test measures its own times beside. Any thread.

#pragma once

#include <map>
#include <string>

namespace weft::testing {

struct ThreadTimes {
  double cpu_us = 0;
  double waited_us = 0;
};

// Since each thread began; threads of one name together. Threads that have ended are not there.
std::map<std::string, ThreadTimes> ThreadTimesByName();

}  // namespace weft::testing
