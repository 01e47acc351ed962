#include "shard/comm/nccl_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace weft::shard {
namespace {

// Between two looks at a call that NCCL goes on with by itself.
constexpr absl::Duration kPoll = absl::Microseconds(20);

ncclDataType_t NcclType(kernels::cuda::DType type) {
  return type == kernels::cuda::DType::kFloat32 ? ncclFloat32 : ncclBfloat16;
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

absl::Status NcclCommunicator::Enqueued(ncclResult_t result, absl::string_view what) {
  const absl::Time deadline = absl::Now() + peer_timeout_;
  while (result == ncclInProgress) {
    if (AbortedWithin(kPoll)) return absl::AbortedError("the epoch was aborted");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("NCCL: ", what, " was not enqueued within ",
                                                      absl::FormatDuration(peer_timeout_)));
    }
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  return CollectiveStatus(result, communicator_, what);
}

absl::Status NcclCommunicator::AllReduce(void* values, uint64_t count, kernels::cuda::DType type,
                                         cudaStream_t stream) {
  WEFT_CHECK(communicator_ != nullptr);
  return Enqueued(
      ncclAllReduce(values, values, count, NcclType(type), ncclSum, communicator_, stream),
      "all-reduce");
}

absl::Status NcclCommunicator::AllGather(const float* mine, uint64_t count, float* all,
                                         cudaStream_t stream) {
  WEFT_CHECK(communicator_ != nullptr);
  return Enqueued(ncclAllGather(mine, all, count, ncclFloat32, communicator_, stream),
                  "all-gather");
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

void NcclCommunicator::Abort() {
  if (!abort_begun_.exchange(true)) aborted_.Notify();
}

void NcclCommunicator::BeginEnd() {
  if (communicator_ == nullptr) return;
  Abort();
  ending_ = Thread("nccl-abort", [communicator = std::exchange(communicator_, nullptr)] {
    ncclCommAbort(communicator);
  });
}

void NcclCommunicator::FinishEnd() {
  if (ending_.joinable()) ending_.Join();
}

}  // namespace weft::shard
