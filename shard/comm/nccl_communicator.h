// The communicator of GPU ranks: NCCL, in steps that wait on the stream and not on the host. Built
// in JoinGroup from the id that rank 0 made, then owned by the model runner; used by the device
// thread, Abort by any thread. Collectives may be captured into graphs, which must be destroyed
// before End. NVLink multicast stays off: the process sets NCCL_NVLS_ENABLE=0 before NCCL starts.

#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/thread.h"
#include "kernels/cuda/types.h"
#include "shard/comm/group_meeting.h"

namespace weft::shard {

// A NCCL error as Status: INTERNAL with the call and NCCL's own words.
absl::Status NcclStatus(ncclResult_t result, ncclComm_t communicator, absl::string_view what);

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(ncclComm_t communicator, const MeetCall& call)
      : communicator_(communicator),
        rank_(call.rank),
        world_(call.world),
        peer_timeout_(call.peer_timeout) {}
  // End(), if it was not called.
  ~NcclCommunicator() override;

  Rank rank() const override { return rank_; }
  uint32_t world() const override { return world_; }
  // The longest that one collective waits for the others.
  absl::Duration peer_timeout() const { return peer_timeout_; }

  // Enqueues: values[i] = sum over ranks of values[i], in the type's own precision.
  absl::Status AllReduce(void* values, uint64_t count, kernels::cuda::DType type,
                         cudaStream_t stream);
  // Enqueues: `all` [world, count] = every rank's `mine` [count], in rank order.
  absl::Status AllGather(const float* mine, uint64_t count, float* all, cudaStream_t stream);

  // The device thread ends the epoch next; kernels that wait for others end then. Asked again a
  // while later it begins the end itself: a device thread inside a call of CUDA that waits for the
  // device (a library loads a kernel) would wait for those kernels for ever. Any thread.
  void Abort() override;
  bool aborted() const { return aborted_.HasBeenNotified(); }
  // Not aborted, and NCCL has met no error by itself: the next collective can begin.
  bool Healthy();
  // Waits until Abort, at most `timeout`: between two looks at what can only be asked for.
  bool AbortedWithin(absl::Duration timeout) const {
    return aborted_.WaitForNotificationWithTimeout(timeout);
  }

  // Until `query`, a look at a stream or an event, no longer says cudaErrorNotReady; then that.
  // ABORTED after Abort; DEADLINE_EXCEEDED with `late` at the deadline.
  absl::StatusOr<cudaError_t> AwaitDevice(absl::FunctionRef<cudaError_t()> query,
                                          absl::Time deadline, absl::string_view late) const;

  // Begins to abort whatever is under way, on a thread of its own: what waits on the device for
  // other ranks comes to an end, and the stream can be waited for. Device thread.
  void BeginEnd();
  // Waits for that thread. REQUIRES: no graph holds collectives any more.
  void FinishEnd();

 private:
  // Calls `collective` and waits until NCCL has it on the stream.
  absl::Status Enqueue(absl::FunctionRef<ncclResult_t(ncclComm_t)> collective, const char* what);
  void BeginEndLocked();

  // Guards the communicator against its end while NCCL is called; std::mutex, which can be tried.
  std::mutex mutex_;
  // Null where there is one rank, and after the begin of the end.
  ncclComm_t communicator_;
  const Rank rank_;
  const uint32_t world_;
  const absl::Duration peer_timeout_;
  std::atomic<bool> abort_begun_{false};
  // Written before aborted_ is notified.
  absl::Time aborted_at_;
  absl::Notification aborted_;
  // Guarded by mutex_.
  Thread ending_;
};

// GPUs meet through NCCL; one alone meets nobody and gets a communicator that must not be used.
std::unique_ptr<GroupMeeting> MakeNcclMeeting(int device);

}  // namespace weft::shard
