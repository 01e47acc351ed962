// Memory of this rank's GPU that the GPUs of all ranks map, over NCCL's symmetric windows: plain
// pointers for kernels that load and store across NVLink (kernels/cuda/all_reduce.h). One window
// holds everything a rank shares, as offsets that are the same on all ranks. No NVLink multicast.
// This header knows nothing of CUDA.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"

// NCCL's own, as ncclComm_t and ncclWindow_t.
struct ncclComm;
struct ncclWindow_vidmem;

namespace weft::shard {

class PeerWindow {
 public:
  // Collective: every rank of `comm` calls it, with the same `bytes` and its device current, in a
  // thread or process of its own; a rank that fails alone leaves the others waiting until their
  // communicators are aborted. When it returns, the memory of all ranks is zero and nobody's zeros
  // are still to be written. `comm` is blocking and outlives the window.
  //
  // FAILED_PRECONDITION on all ranks alike when there are no symmetric windows here (a GPU that
  // cannot reach a peer, ranks on several hosts, NCCL_CUMEM_ENABLE=0 or NCCL_WIN_ENABLE=0, an NCCL
  // other than the one compiled for, NCCL_NVLS_ENABLE not 0): ncclAllReduce still works then.
  static absl::StatusOr<std::unique_ptr<PeerWindow>> Create(ncclComm* comm, uint64_t bytes);
  // Local. REQUIRES: no kernel of any rank uses the window any more; before the communicator's
  // end.
  ~PeerWindow();
  PeerWindow(const PeerWindow&) = delete;
  PeerWindow& operator=(const PeerWindow&) = delete;

  uint64_t bytes() const { return bytes_; }
  // This rank's memory, 4096-byte aligned.
  uint8_t* data() const { return data_; }
  // That of `rank` as mapped here; data() for this rank.
  uint8_t* Of(Rank rank) const { return peers_[rank]; }
  uint32_t world() const { return static_cast<uint32_t>(peers_.size()); }

 private:
  explicit PeerWindow(ncclComm* comm) : comm_(comm) {}

  absl::Status CheckSymmetric();
  absl::Status Allocate(uint64_t bytes);
  absl::Status Register();
  absl::Status FindPeers();

  ncclComm* const comm_;
  int rank_ = 0;
  int ranks_ = 0;
  uint64_t bytes_ = 0;
  // Behind bytes_, where each rank leaves its number for the others to find.
  uint64_t mark_at_ = 0;
  uint64_t allocated_ = 0;
  uint8_t* data_ = nullptr;
  ncclWindow_vidmem* window_ = nullptr;
  std::vector<uint8_t*> peers_;
};

}  // namespace weft::shard
