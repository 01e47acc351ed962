// The facts of a system that `weft doctor` judges, asked for through one interface, so that a test
// can make up a system. What a check reads from /proc and /sys lies under root(). Main thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "shard/device/cuda/survey.h"

namespace weft::launcher {

class Host {
 public:
  virtual ~Host() = default;

  // In front of every path of /proc and /sys; "" on a machine.
  virtual std::string root() const = 0;
  // The hard limit of open files, to which the router raises its own.
  virtual uint64_t OpenFilesMax() const = 0;
  // Whether so many threads more may be started.
  virtual absl::Status ThreadsLeft(uint32_t count) const = 0;
  // Cores that this process may run on.
  virtual uint32_t Cores() const = 0;
  // Instruction sets that CPU kernels may use here, the best one first.
  virtual std::vector<std::string> InstructionSets() const = 0;
  virtual absl::Time Now() const = 0;
  // Whether something disciplines the clock, as an NTP client does; nothing where none can be
  // asked.
  virtual absl::optional<bool> ClockIsSynchronised() const = 0;
  // Free bytes of /dev/shm; nothing where it is missing.
  virtual absl::optional<uint64_t> DevShmBytes() const = 0;
  // Opens a port and closes it again. ALREADY_EXISTS when it is taken.
  virtual absl::Status Listen(const std::string& host, uint32_t port) const = 0;
  // Lets two processes meet in shared memory as CPU shards do.
  virtual absl::Status Meet() const = 0;
  // Whether `path` may be read by everybody on the host.
  virtual bool OthersRead(const std::string& path) const = 0;
  // Opens the GPUs: after all that starts processes.
  virtual shard::GpuSurvey Gpus() const = 0;
};

// The machine that this runs on.
std::unique_ptr<Host> ThisHost();

}  // namespace weft::launcher
