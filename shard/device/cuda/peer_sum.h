// The sum over ranks of a decode step's few rows, in one kernel with residual and norm, through
// memory that all GPUs of the host map (kernels/cuda/comm/all_reduce.h, shard/comm/peer_memory.h).
// Owned by the model runner, device thread only but for Abort. Between Connect and Disconnect the
// ranks make the same calls, output and down products in turn.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/comm/all_reduce.h"
#include "shard/comm/peer_memory.h"
#include "shard/device/cuda/planner.h"
#include "shard/device/cuda/runtime/buffer.h"

namespace weft::shard {

class PeerSum {
 public:
  // Rows that a call may have.
  static constexpr uint32_t kRowsMax = kPeerRowsMax;

  // Bytes that Create takes on the device.
  static uint64_t Bytes(uint32_t hidden);
  static absl::StatusOr<std::unique_ptr<PeerSum>> Create(uint32_t hidden);

  // As PeerMemory::Connect. `status`, a word on this device, is cleared now and written by the
  // first sum whose wait fails: copied behind a step on its stream, it speaks of that step and of
  // those before, and not of one that was launched later.
  absl::Status Connect(NcclCommunicator& communicator, cudaStream_t stream, absl::Duration timeout,
                       uint32_t* status);
  void Disconnect();
  bool connected() const { return memory_->connected(); }

  // Where this rank's partial sums of a product (0: output, 1: down) go, [rows, hidden]
  // bf16.
  void* Partial(uint32_t product) const { return memory_->data() + product * PartialBytes(); }
  // residual += what all ranks have there; out = its norm. Fields of `params` but those of rows,
  // residual, norm and overlap are filled here.
  cudaError_t AddNorm(uint32_t product, kernels::cuda::AllReduceParams params,
                      cudaStream_t stream) const;

  // Ends waits on the device. Any thread.
  void Abort();
  // What the word says. Not OK: a wait failed, and the step's numbers are garbage.
  static absl::Status StatusOf(uint32_t word);

 private:
  explicit PeerSum(uint32_t hidden) : hidden_(hidden) {}
  uint64_t PartialBytes() const { return uint64_t{kRowsMax} * hidden_ * 2; }
  // What all ranks map: two buffers of partial sums, two mailboxes, the flags.
  uint64_t MailAt(uint32_t product) const;
  uint64_t FlagsAt() const { return MailAt(2); }
  // Host memory that the device reads.
  volatile uint32_t* abort_word() const {
    return reinterpret_cast<volatile uint32_t*>(abort_word_.data());
  }

  const uint32_t hidden_;
  std::unique_ptr<PeerMemory> memory_;
  DeviceBuffer state_;
  PinnedBuffer abort_word_;
  uint32_t* status_ = nullptr;
  Rank rank_ = 0;
  uint32_t world_ = 0;
  uint64_t wait_max_ns_ = 0;
};

}  // namespace weft::shard
