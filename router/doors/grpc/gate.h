// The connection gate of the public gRPC port: it accepts, counts and caps connections on a thread
// of its own and hands them to gRPC, which has no such bounds itself. Made, started and stopped by
// the gRPC server.
//
// A connection that makes no call in time is ended, so that silence cannot hold descriptors. Those
// that have made none yet are few besides: one more pushes out the oldest of them, which also
// bounds the TLS handshakes under way. When there are too many in all, a newcomer pushes out the
// one that was used least recently, first among those no call of which was let in. A connection on
// which a call is worked on is never pushed out for a newcomer, nor is a Unix socket. One that
// fills gRPC's memory with headers and messages that do not get whole is ended, whether it has made
// calls or not; so is one whose client does not read. Peers that vanish are noticed by TCP. When
// descriptors run out the newcomer is turned away and the thread pauses, it never spins.
//
// The callers of Find are gRPC's threads; no lock is held over a system call that waits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/thread.h"
#include "router/doors/grpc/connection.h"
#include "router/doors/grpc/hand_over.h"
#include "router/doors/grpc/listener.h"
#include "router/doors/grpc/new_connections.h"

namespace weft::router {

struct ConnectionGateOptions {
  size_t connections_max = 1024;
  // Of these, connections that have made no call yet.
  size_t starting_max = 256;
  // From accept to the first call.
  int64_t first_call_timeout_us = 20'000'000;
  // Bytes of headers and messages that are not whole yet, on one connection and on all together;
  // one more ends the connection that has most.
  uint64_t unfinished_connection_bytes_max = 40u << 20;
  uint64_t unfinished_bytes_max = 80u << 20;
  // Bytes that gRPC reads from a connection without an answer while no call waits for its message.
  // It looks at all of a header again whenever more of it comes.
  uint64_t unanswered_bytes_max = 8u << 20;
  // A connection ends when bytes wait for its client and it has taken none for so long.
  int64_t slow_reader_timeout_us = 30'000'000;
  // Whether a connection that is turned away may be told so in clear text.
  bool plain_text = true;
};

class ConnectionGate {
 public:
  // Binds and listens; nothing is accepted before Start. An error names the address.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(
      const std::string& address, const ConnectionGateOptions& options);
  ~ConnectionGate();

  // 0 for a Unix socket.
  int port() const { return listener_.port(); }

  // The ways by which connections may go to gRPC; one more is for Unix sockets.
  static constexpr size_t kWays = 256;
  // Starts to accept. `hand_over` gets the listening and the accepted descriptor, the second to
  // own, and the way that the connection takes, on a thread of its own.
  absl::Status Start(HandOver::Taker hand_over);
  // Accepts no more and joins the thread. Connections live on until the gate is destroyed, which
  // must come after gRPC's end. Idempotent.
  void Stop();

  // The connection of a call, by gRPC's name for the peer ("ipv4:10.0.0.1:4711"); null for Unix
  // sockets, whose peers have no names, and for a connection that has just closed.
  std::shared_ptr<GrpcConnection> Find(const std::string& peer) const;
  // The connection of a call that came by this way, when no call on it was seen before; null where
  // that is not sure.
  std::shared_ptr<GrpcConnection> Leave(size_t way) { return new_.Leave(way); }
  // A call on it has come to its handler: it is no longer among those that may be pushed out.
  void Identify(GrpcConnection* connection);
  // Ends a connection because its calls are a flood, and logs that at most once in ten seconds.
  void EndFlood(const std::shared_ptr<GrpcConnection>& connection);

  struct Stats {
    size_t connections = 0;
    size_t starting = 0;    // of them, without a call so far
    int64_t refused = 0;    // turned away or pushed out because there were too many
    int64_t timed_out = 0;  // made no call in time
    int64_t floods = 0;     // ended for their resets or their unfinished bytes
    int64_t slow = 0;       // ended because their clients do not read
  };
  Stats stats() const;

 private:
  ConnectionGate(const ConnectionGateOptions& options, Listener listener);

  using Starting = std::list<std::shared_ptr<GrpcConnection>>;
  struct Entry {
    std::shared_ptr<GrpcConnection> connection;
    int fd = -1;  // the connection's own descriptor, for epoll
    bool starting = false;
    Starting::iterator at;  // while `starting`
  };
  // Says whether a message that may come often is due again; counts what was held back.
  struct RareLog {
    bool Due(int64_t now_us, int64_t* held_back);
    int64_t next_us = 0;
    int64_t held = 0;
  };

  void Run();
  void Accept(int listener_fd);
  void Add(int listener_fd, int fd);
  // Makes room for one connection; false when there is none.
  bool MakeRoom();
  // Null when calls are worked on on all of them.
  std::shared_ptr<GrpcConnection> LeastWorth() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(int fd);
  void OutOfDescriptors(int listener_fd, int error);
  void SetAccepting(bool accepting);
  void Remove(uint64_t id);
  // Ends those that made no call in time. How long until the next may be due, in milliseconds; -1
  // when there is none.
  int CheckStarting(int64_t now_us);
  // Ends those that fill memory with what never becomes a call, and those whose clients do not
  // read. How long until the next look, in milliseconds; -1 without connections.
  int CheckBytes(int64_t now_us);
  void EndSlow(GrpcConnection* connection);
  void NoteUnfinished(const GrpcConnection& connection, uint64_t bytes);
  void LeaveStarting(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ConnectionGateOptions options_;
  const Listener listener_;
  NewConnections new_{kWays};
  HandOver hand_over_;
  int epoll_ = -1;
  int wake_ = -1;   // an eventfd: Stop
  int spare_ = -1;  // given up for a moment when descriptors have run out
  bool accepting_ = false;
  int64_t resume_us_ = 0;  // when to accept again after descriptors ran out
  uint64_t last_id_;
  RareLog refused_log_;
  RareLog descriptors_log_;
  RareLog unfinished_log_;
  RareLog slow_log_;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Entry> by_id_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::shared_ptr<GrpcConnection>> by_peer_
      ABSL_GUARDED_BY(mutex_);
  Starting starting_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  RareLog flood_log_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace weft::router
