// The computing half of a CUDA shard: weights, KV pool, the forward and the sampler of one GPU
// behind the ModelRunner interface. Created once, by the loader thread, which also loads the
// weights; then owned by the executor and called by the device thread only. Launches steps ahead:
// one runs while the next waits on the stream. Knows nothing of the wire, and this header nothing
// of CUDA: a build without it has the same functions, which refuse.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shard/comm/group_meeting.h"
#include "shard/device/cuda/local_device.h"
#include "shard/device/model_runner.h"
#include "shard/kv/memory_plan.h"
#include "shard/model/plan_rules.h"
#include "shard/weights/loader.h"

namespace weft::shard {

struct CudaDevice {
  // As CUDA numbers those that this process sees.
  int index = 0;
  // As "NVIDIA H200".
  std::string name;
  uint64_t total_bytes = 0;
};

// The shard's GPU among those of this process (LocalGpu). NOT_FOUND when there is no driver or no
// such GPU, FAILED_PRECONDITION when it or its driver cannot run these kernels, each saying what is
// there and what to do about it; UNIMPLEMENTED in a build without CUDA. Callers say which flag
// asked.
absl::StatusOr<CudaDevice> FindCudaDevice(const GpuChoice& choice);

// Whether `no_gpu`, an error of FindCudaDevice, leaves a GPU of this host unused, as far as can be
// told: there is a driver.
bool LeavesGpuUnused(const absl::Status& no_gpu);

// Sets what CUDA's libraries read from the environment. Main thread, before any other is started.
void PrepareCudaEnvironment();

struct CudaRunnerOptions {
  MemoryFlags memory;
  CudaDevice device;
  // Longest wait for a launched step, beyond what it may take by itself
  // (shard/model/step_allowance.h).
  int64_t step_timeout_us = 0;
  // Joins of operations that are not made (planner.h); for tests.
  std::vector<const PlanRule*> left_out;
};

class CudaModelRunner : public ModelRunner {
 public:
  // Any thread.
  virtual const MemoryPlan& memory() const = 0;

  // How this GPU's rank meets the others.
  virtual std::unique_ptr<GroupMeeting> MakeMeeting() const = 0;
};

// Plans memory, loads the weights of `slice` with `progress`. *cancel ends the load with CANCELLED.
absl::StatusOr<std::unique_ptr<CudaModelRunner>> CreateCudaModelRunner(
    const CudaRunnerOptions& options, ModelFiles& files, const SlicePlan& slice,
    LoadProgress& progress, const std::atomic<bool>& cancel);

}  // namespace weft::shard
