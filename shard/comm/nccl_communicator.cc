#include "shard/comm/nccl_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/nvtx.h"

namespace weft::shard {
namespace {

// Between two looks at a call that NCCL goes on with by itself.
constexpr absl::Duration kPoll = absl::Microseconds(20);
// The device thread has so long to end an aborted epoch by itself.
constexpr absl::Duration kAbortPatience = absl::Milliseconds(200);

ncclDataType_t NcclType(kernels::cuda::DType type) {
  return type == kernels::cuda::DType::kFloat32 ? ncclFloat32 : ncclBfloat16;
}

// What has become of a call that was in progress.
ncclResult_t AsyncResult(ncclComm_t communicator) {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(communicator, &result);
  return asked == ncclSuccess ? result : asked;
}

// Of a collective. What another rank's end does to this one is no error of this rank's device.
absl::Status CollectiveStatus(ncclResult_t result, ncclComm_t communicator,
                              absl::string_view what) {
  const absl::Status status = NcclStatus(result, communicator, what);
  const bool of_peer = result == ncclRemoteError || result == ncclSystemError;
  return of_peer ? absl::AbortedError(status.message()) : status;
}

}  // namespace

absl::Status NcclStatus(ncclResult_t result, ncclComm_t communicator, absl::string_view what) {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* const detail = ncclGetLastError(communicator);
  return absl::InternalError(absl::StrCat("NCCL: ", what, ": ", ncclGetErrorString(result),
                                          detail != nullptr && *detail != '\0' ? ": " : "",
                                          detail != nullptr ? detail : ""));
}

NcclCommunicator::~NcclCommunicator() {
  BeginEnd();
  FinishEnd();
}

absl::Status NcclCommunicator::Enqueue(absl::FunctionRef<ncclResult_t(ncclComm_t)> collective,
                                       const char* what) {
  WEFT_CHECK_GT(world_, 1u);
  const NvtxRange range(what);
  const absl::Time deadline = absl::Now() + peer_timeout_;
  for (bool is_first = true; true; is_first = false) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (communicator_ == nullptr) return absl::AbortedError("the epoch was aborted");
      const ncclResult_t result = is_first ? collective(communicator_) : AsyncResult(communicator_);
      if (result != ncclInProgress) return CollectiveStatus(result, communicator_, what);
    }
    if (AbortedWithin(kPoll)) return absl::AbortedError("the epoch was aborted");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("NCCL: ", what, " was not enqueued within ",
                                                      absl::FormatDuration(peer_timeout_)));
    }
  }
}

absl::Status NcclCommunicator::AllReduce(void* values, uint64_t count, kernels::cuda::DType type,
                                         cudaStream_t stream) {
  const auto reduce = [&](ncclComm_t communicator) {
    return ncclAllReduce(values, values, count, NcclType(type), ncclSum, communicator, stream);
  };
  return Enqueue(reduce, "all-reduce");
}

absl::Status NcclCommunicator::AllGather(const float* mine, uint64_t count, float* all,
                                         cudaStream_t stream) {
  const auto gather = [&](ncclComm_t communicator) {
    return ncclAllGather(mine, all, count, ncclFloat32, communicator, stream);
  };
  return Enqueue(gather, "all-gather");
}

absl::StatusOr<cudaError_t> NcclCommunicator::AwaitDevice(absl::FunctionRef<cudaError_t()> query,
                                                          absl::Time deadline,
                                                          absl::string_view late) const {
  cudaError_t state = cudaErrorNotReady;
  while ((state = query()) == cudaErrorNotReady) {
    if (AbortedWithin(kPoll)) return absl::AbortedError("the epoch was aborted");
    if (absl::Now() > deadline) return absl::DeadlineExceededError(late);
  }
  return state;
}

bool NcclCommunicator::Healthy() {
  if (aborted()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (communicator_ == nullptr) return world_ == 1;
  return AsyncResult(communicator_) == ncclSuccess;
}

void NcclCommunicator::Abort() {
  if (!abort_begun_.exchange(true)) {
    aborted_at_ = absl::Now();
    aborted_.Notify();
    return;
  }
  if (!aborted() || absl::Now() - aborted_at_ < kAbortPatience) return;
  // Where NCCL itself is being called it sees the abort on its return.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) BeginEndLocked();
}

void NcclCommunicator::BeginEnd() {
  Abort();
  const std::lock_guard<std::mutex> lock(mutex_);
  BeginEndLocked();
}

void NcclCommunicator::BeginEndLocked() {
  if (communicator_ == nullptr) return;
  ending_ = Thread("nccl-abort", [communicator = std::exchange(communicator_, nullptr)] {
    ncclCommAbort(communicator);
  });
}

void NcclCommunicator::FinishEnd() {
  Thread ending;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending = std::move(ending_);
  }
  ending.Join();
}

}  // namespace weft::shard
