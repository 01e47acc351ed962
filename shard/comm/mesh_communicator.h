// The communicator of CPU ranks of several hosts: a TCP connection between every two of them. Built
// by mesh_meeting.h in JoinGroup, then owned by the ModelRunner; used by the device thread, Abort
// by any thread. It has no thread of its own, takes no memory after its construction and never
// waits longer than its time-out, whatever its peers do.
//
// A collective is: send the own window to all, receive all windows, add them in rank order. So a
// sum is that of the shared-memory communicator, bit for bit (invariant num.row): no part of a
// value is added on another rank first. Each rank sends (world - 1) windows, which suits the few
// hosts that CPU ranks are spread over.
//
// On a connection go frames of the header below and the bytes of a window, one for each collective.
// What goes over it is not encrypted: whoever may join is proven by the secret of the epoch.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "shard/comm/communicator.h"
#include "shard/comm/tcp_socket.h"
#include "shard/heartbeat.h"

namespace weft::shard {

struct MeshOptions {
  Epoch epoch = 0;
  Rank rank = 0;
  uint32_t world = 2;
  // Floats of the largest all-reduce.
  int64_t capacity_floats = 0;
  // Bounds each collective.
  absl::Duration wait_timeout;
  // Beats while waiting and outlives the communicator. May be null.
  Heartbeat* heartbeat = nullptr;
};

class MeshCommunicator : public HostCommunicator {
 public:
  // `peers[r]` is the connection to rank r; that of the own rank is not open.
  MeshCommunicator(const MeshOptions& options, std::vector<TcpSocket> peers);

  Rank rank() const override { return options_.rank; }
  uint32_t world() const override { return options_.world; }
  // No other collective may come between Stage and its AllReduceAdd: they share the window.
  float* Stage(int64_t count) override;
  absl::Status AllReduceAdd(float* target, int64_t count) override;
  // Goes in pieces of a window when `bytes` is larger.
  absl::Status AllGather(const void* mine, size_t bytes, void* all) override;
  // Ends the waits of all ranks, not only of this one.
  void Abort() override;
  uint64_t waited_us() const override { return waited_us_.load(std::memory_order_relaxed); }

  // Waits until every rank is here: the first call, once.
  absl::Status Meet(absl::Duration timeout) { return Exchange(0, timeout); }

 private:
  struct FrameHeader {
    uint32_t collective;
    uint32_t bytes;
  };
  // One peer's part of the collective under way: bytes of the frame, its header included.
  struct Progress {
    FrameHeader header;
    size_t sent;
    size_t received;
  };
  struct FreeDeleter {
    void operator()(std::byte* memory) const;
  };

  std::byte* window(Rank rank) const { return windows_.get() + rank * window_bytes_; }
  // All ranks' windows of this collective are in window(...) when it returns OK.
  absl::Status Exchange(size_t bytes, absl::Duration timeout);
  // Whether something moved; sets `left` to the frames that are not whole.
  absl::StatusOr<bool> Advance(size_t bytes, uint32_t* left);
  absl::StatusOr<bool> Send(Rank peer, size_t bytes);
  absl::StatusOr<bool> Receive(Rank peer, size_t bytes);
  absl::Status CheckHeader(Rank peer, size_t bytes) const;
  // Sleeps until a peer is ready, a slice at most.
  void Sleep(size_t bytes) const;
  absl::Status Late(size_t bytes);
  absl::Status Broken(Rank peer) const;

  const MeshOptions options_;
  const std::vector<TcpSocket> peers_;
  const size_t window_bytes_;
  const std::unique_ptr<std::byte, FreeDeleter> windows_;
  // Collectives so far: what the next frame has to say.
  uint32_t collective_ = 0;
  std::vector<Progress> progress_;
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> waited_us_{0};
};

}  // namespace weft::shard
