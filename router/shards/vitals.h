// Tells a hung shard from a slow one: a shard is hung when for a whole hang time-out it showed no
// heartbeat and, where the CPU is the device, its process used no CPU time. A busy machine makes
// steps late, which is a metric and no fault; a stopped or deadlocked process does nothing at all.
// A process that waits for an accelerator uses CPU time whether or not that works; its heartbeat
// goes on for as long as the steps launched may take (shard/model/step_allowance.h). One per rank,
// owned by the shard group; pure: time and facts are inputs.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

// A shard's process as it names itself (InfoResponse).
struct ShardProcess {
  uint64_t pid = 0;
  // Clock ticks after boot.
  uint64_t start_ticks = 0;
  // Inode of the pid namespace that `pid` counts in.
  uint64_t pid_namespace = 0;
};

// CPU time of a process of this machine in microseconds; empty when it cannot be read.
using ProcessCpuReader = std::function<std::optional<int64_t>(const ShardProcess& process)>;
// Reads /proc/<pid>/stat, where that is provably the same process: the namespaces are the same, and
// so is the start. A shard in another container has another one of that number here, or none.
std::optional<int64_t> ReadShardCpuUs(const ShardProcess& process);

class ShardVitals {
 public:
  // Starts watching at `now_us`; called when the shard is new or the group forms.
  void Restart(int64_t now_us);
  // An Info answer: the process lives, the device thread perhaps.
  void OnInfo(const weft::shard::v1::InfoResponse& info, int64_t now_us);
  // A step was answered: everything lives.
  void OnStep(int64_t now_us);

  // True when the process shows no life since `timeout_us`: no Info answer and, when `read_cpu` is
  // given, no CPU time from the first missed answers on. To be asked several times in a time-out.
  bool ProcessHung(int64_t now_us, int64_t timeout_us, const ShardProcess& process,
                   const ProcessCpuReader* read_cpu);
  // True when Info is answered but the device thread, which owes a step since `owes_since_us`
  // (0 = owes none), shows no life and, with `works_on_cpu`, the process does no work.
  bool DeviceHung(int64_t now_us, int64_t timeout_us, int64_t owes_since_us,
                  bool works_on_cpu) const;

 private:
  // Last time the process, and the work in it, showed life.
  int64_t process_alive_us_ = 0;
  int64_t device_alive_us_ = 0;
  // CPU time when work was last seen by Info, and when that was.
  int64_t cpu_us_ = 0;
  int64_t cpu_seen_us_ = 0;
  // The same for the process's own figures while it is silent; empty while it is not.
  struct Watched {
    int64_t cpu_us;
    int64_t since_us;
  };
  std::optional<Watched> watched_;
};

}  // namespace weft::router
