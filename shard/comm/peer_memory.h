// Memory of this rank's GPU that the GPUs of all ranks of the host map: plain pointers for kernels
// that load and store across NVLink (kernels/cuda/comm/all_reduce.h). Taken once, at load; the
// ranks map each other's for the time of an epoch, by CUDA's inter-process handles. Owned by the
// model runner, device thread only. No NVLink multicast.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shard/comm/nccl_communicator.h"

namespace weft::shard {

class PeerMemory {
 public:
  // Takes the memory on the current device. RESOURCE_EXHAUSTED when there is too little.
  static absl::StatusOr<std::unique_ptr<PeerMemory>> Create(uint64_t bytes);
  // Disconnect(), if it was not called.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Collective: zeroes this rank's memory and maps that of all ranks. When it returns OK, the
  // memory of all ranks is zero and nobody's zeros are still to be written. FAILED_PRECONDITION, on
  // all ranks alike, when one of them cannot reach another's, as on another host; ABORTED after the
  // communicator's Abort; DEADLINE_EXCEEDED after `timeout`.
  absl::Status Connect(NcclCommunicator& communicator, cudaStream_t stream, absl::Duration timeout);
  // Local. REQUIRES: no kernel of this rank uses others' memory any more. Theirs may still use this
  // one's: it stays.
  void Disconnect();
  bool connected() const { return !peers_.empty(); }

  uint64_t bytes() const { return bytes_; }
  // This rank's memory, 256-byte aligned.
  uint8_t* data() const { return data_; }
  // That of `rank` as mapped here; data() for this rank. REQUIRES: connected().
  uint8_t* Of(Rank rank) const { return peers_[rank].data; }

 private:
  struct Peer {
    uint8_t* data = nullptr;
    // Opened by a handle, which Disconnect closes.
    bool mapped = false;
  };

  PeerMemory() = default;
  // Gathers `bytes` (a multiple of four) of every rank.
  absl::Status Gather(NcclCommunicator& communicator, const void* mine, uint64_t bytes, void* all,
                      cudaStream_t stream, absl::Time deadline);
  absl::StatusOr<Peer> Open(Rank rank, const void* offer) const;

  uint64_t bytes_ = 0;
  uint8_t* data_ = nullptr;
  // Where Gather copies from and to on the device: one offer, then one of each rank.
  uint8_t* exchange_ = nullptr;
  std::vector<Peer> peers_;
};

}  // namespace weft::shard
