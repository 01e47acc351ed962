#include "shard/device/cuda/peer_sum.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {

using kernels::cuda::AllReduceMailBytes;
using kernels::cuda::AllReduceParams;
using kernels::cuda::AllReduceState;
using kernels::cuda::kAllReduceFlags;
using kernels::cuda::kAllReduceHiddenMax;
using kernels::cuda::kAllReduceRanksMax;

uint64_t PeerSum::Bytes(uint32_t hidden) {
  return 2 * (uint64_t{kRowsMax} * hidden * 2 + AllReduceMailBytes(hidden)) +
         kAllReduceFlags * sizeof(uint32_t) + sizeof(AllReduceState);
}

uint64_t PeerSum::MailAt(uint32_t product) const {
  return 2 * PartialBytes() + product * AllReduceMailBytes(hidden_);
}

absl::StatusOr<std::unique_ptr<PeerSum>> PeerSum::Create(uint32_t hidden) {
  std::unique_ptr<PeerSum> sum(new PeerSum(hidden));
  WEFT_ASSIGN_OR_RETURN(sum->memory_,
                        PeerMemory::Create(sum->FlagsAt() + kAllReduceFlags * sizeof(uint32_t)));
  WEFT_ASSIGN_OR_RETURN(sum->state_, AllocateDevice(sizeof(AllReduceState), "sums over ranks"));
  WEFT_ASSIGN_OR_RETURN(sum->abort_word_, AllocatePinned(sizeof(uint32_t), "sums over ranks"));
  *sum->abort_word() = 0;
  return sum;
}

absl::Status PeerSum::Connect(NcclCommunicator& communicator, cudaStream_t stream,
                              absl::Duration timeout, uint32_t* status) {
  rank_ = communicator.rank();
  world_ = communicator.world();
  wait_max_ns_ = static_cast<uint64_t>(absl::ToInt64Nanoseconds(communicator.peer_timeout()));
  if (world_ > kAllReduceRanksMax || hidden_ > kAllReduceHiddenMax) {
    return absl::FailedPreconditionError(absl::StrCat(world_, " ranks of hidden size ", hidden_,
                                                      "; served are ", kAllReduceRanksMax, " and ",
                                                      kAllReduceHiddenMax));
  }
  *abort_word() = 0;
  status_ = status;
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(status_, 0, sizeof(*status_), stream), "clearing a status"));
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(state_.data(), 0, sizeof(AllReduceState), stream),
                                  "clearing the state of sums"));
  return memory_->Connect(communicator, stream, timeout);
}

void PeerSum::Disconnect() { memory_->Disconnect(); }

cudaError_t PeerSum::AddNorm(uint32_t product, AllReduceParams params, cudaStream_t stream) const {
  for (Rank rank = 0; rank < world_; ++rank) {
    params.partial[rank] = memory_->Of(rank) + product * PartialBytes();
    params.mail[rank] = memory_->Of(rank) + MailAt(product);
    params.flags[rank] = reinterpret_cast<uint32_t*>(memory_->Of(rank) + FlagsAt());
  }
  params.state = reinterpret_cast<AllReduceState*>(state_.data());
  params.rank = rank_;
  params.world = world_;
  params.hidden = hidden_;
  params.wait_max_ns = wait_max_ns_;
  params.abort = const_cast<uint32_t*>(abort_word());
  params.status = status_;
  return kernels::cuda::AllReduceAddNorm(params, stream);
}

void PeerSum::Abort() { *abort_word() = 1; }

absl::Status PeerSum::StatusOf(uint32_t word) {
  switch (word) {
    case kernels::cuda::kAllReduceOk:
      return absl::OkStatus();
    case kernels::cuda::kAllReduceAborted:
      return absl::AbortedError("the epoch was aborted");
    default:
      return absl::DeadlineExceededError("another rank did not come to a sum in time");
  }
}

}  // namespace weft::shard
