// The sockets of ranks that meet over TCP: what mesh_meeting.h and mesh_communicator.h need of the
// kernel and no more. Every call is bounded: none of them blocks in the kernel for longer than
// kSlice, and a Patience says when to give up. Device thread, but for Shutdown: any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "shard/heartbeat.h"

namespace weft::shard {

// A descriptor that is closed with its owner.
class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(int fd) : fd_(fd) {}
  ~TcpSocket();
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  // Ends it in both directions: the peer reads an end, and so does whoever waits here. Any thread.
  void Shutdown() const;

 private:
  int fd_ = -1;
};

// Where ranks of other hosts find this one.
struct TcpEndpoint {
  // An IP address without brackets.
  std::string host;
  uint32_t port = 0;
};

// The ports that may be listened on, both ends included; 0 and 0 = any that is free.
struct PortRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

// How long and by whose leave a call may wait.
struct Patience {
  absl::Time deadline;
  // Beats while waiting. May be null.
  Heartbeat* heartbeat = nullptr;
  // Asked between two slices of a wait; true ends it with ABORTED.
  std::function<bool()> aborted;

  // OK while there is time; ABORTED, or DEADLINE_EXCEEDED "`what` until its time-out".
  absl::Status Check(absl::string_view what) const;
};

// No wait in the kernel is longer.
inline constexpr absl::Duration kSlice = absl::Milliseconds(20);

// Listens on an address of this host. INVALID_ARGUMENT when `host` is no IP address,
// FAILED_PRECONDITION when it is none of this host's or no port of the range is free; both name
// the flag.
absl::StatusOr<TcpSocket> ListenTcp(const std::string& host, PortRange ports);
// The port that a listener has.
uint32_t PortOf(const TcpSocket& listener);
// The next connection; a socket that is not open when none waits.
TcpSocket AcceptTcp(const TcpSocket& listener);
// Connects; tries again until `patience` ends, because a partition or a restart may pass.
// UNAVAILABLE or ABORTED or DEADLINE_EXCEEDED, with the address and the last reason.
absl::StatusOr<TcpSocket> ConnectTcp(const TcpEndpoint& to, const Patience& patience);
// All of it, or an error: UNAVAILABLE when the peer has closed.
absl::Status WriteAll(const TcpSocket& socket, const void* data, size_t bytes,
                      const Patience& patience);
absl::Status ReadAll(const TcpSocket& socket, void* data, size_t bytes, const Patience& patience);
// Until one of them has something to read, or a connection to accept; a slice at most.
void AwaitReadable(const std::vector<int>& sockets);
// Bytes that are there now: 0 for none, -1 when the peer has closed or the connection broke.
int64_t ReadSome(const TcpSocket& socket, void* data, size_t bytes);

}  // namespace weft::shard
