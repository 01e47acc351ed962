// Runs one function per rank, each in a forked process, and collects how they ended: collectives
// are tested between processes because that is where they live. The parent must have no other
// threads at the time. For tests only.

#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace weft::shard {

class RankProcesses {
 public:
  // The body returns the exit code, 0 for success.
  RankProcesses(uint32_t world, const std::function<int(uint32_t rank)>& body) {
    // Or each child would print what the parent has not yet.
    std::cout.flush();
    for (uint32_t rank = 0; rank < world; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        int code = 99;
        try {
          code = body(rank);
        } catch (const std::exception&) {
        }
        _exit(code);
      }
      pids_.push_back(pid);
    }
  }

  ~RankProcesses() {
    for (const pid_t pid : pids_) {
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
  }

  pid_t pid(uint32_t rank) const { return pids_[rank]; }

  // Waits for a rank; its exit code, or minus the signal that ended it.
  int Wait(uint32_t rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    pids_[rank] = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::vector<pid_t> pids_;
};

// True once the kernel reports `pid` asleep; false when it is not within 20 s.
inline bool WaitUntilAsleep(pid_t pid) {
  const int64_t begin_us = MonotonicClock().NowUs();
  while (MonotonicClock().NowUs() - begin_us < 20'000'000) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t name_end = text.rfind(')');
    if (name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0) return true;
  }
  return false;
}

}  // namespace weft::shard
