// How much of the machine others use while something is measured: what /proc/stat counts as busy,
// less the CPU time of the own process and of one child. Benches print it beside each number, since
// a number measured beside others says nothing.

#pragma once

#include <sys/types.h>

#include <cstdint>

namespace weft::shard {

class MachineLoad {
 public:
  // `child`: process not counted among the others; 0 = none.
  explicit MachineLoad(pid_t child = 0);

  // Share of all cores that others have used since construction, 0 .. 1.
  double OthersShare() const;

 private:
  struct Sample {
    double busy_s = 0;
    double total_s = 0;
    double own_s = 0;
  };
  Sample Take() const;

  const pid_t child_;
  Sample start_;
};

}  // namespace weft::shard
