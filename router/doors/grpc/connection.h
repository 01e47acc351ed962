// One accepted connection of the public gRPC port, beside what gRPC itself knows of it: what its
// calls make it worth, and a way to end it from outside. Made by the connection gate; held by the
// gate until the connection has closed. Thread-safe. It never reads or writes the connection's
// bytes.

#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

struct tcp_info;

namespace weft::router {

class GrpcConnection {
 public:
  // `fd` is a descriptor of its own (a dup) of the connection's socket and is owned.
  GrpcConnection(uint64_t id, std::string peer, int fd, int64_t accepted_us);
  ~GrpcConnection();

  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  uint64_t id() const { return id_; }
  const std::string& peer() const { return peer_; }
  int64_t accepted_us() const { return accepted_us_; }

  // A call on it has come to its handler. True the first time.
  bool Identify();
  bool identified() const;
  // A call on it was let in by its key, or needed none.
  void Authenticate() { authenticated_.store(true, std::memory_order_relaxed); }
  // A call on it begins to be worked on, or has ended after that.
  void AddRunning(int calls, int64_t now_us);
  // Something was heard of one of its calls.
  void Touch(int64_t now_us) { used_us_.store(now_us, std::memory_order_relaxed); }
  // Which connections are the first to go when there are too many: those less in the order of this.
  struct Worth {
    bool running = false;
    bool authenticated = false;
    int64_t used_us = 0;
    bool operator<(const Worth& other) const {
      return std::tie(running, authenticated, used_us) <
             std::tie(other.running, other.authenticated, other.used_us);
    }
  };
  Worth worth() const;

  // Bytes that its client sent so far; 0 when it has closed, and for Unix sockets.
  uint64_t ReceivedBytes() const;

  // A call has begun at `began_us`, whose headers of so many bytes were whole then and whose
  // message is not. What it returns goes to EndMessage, once: when the message is whole, and has so
  // many bytes, or when the call has ended and nobody waits for it.
  uint64_t BeginMessage(int64_t began_us, int64_t now_us, uint64_t header_bytes);
  void EndMessage(uint64_t begin, uint64_t message_bytes);
  struct Bytes {
    // Bytes that its client sent and that may be part of headers or a message that is not whole:
    // gRPC keeps these, without bound while headers are not whole. What came before the oldest call
    // that still waits for its message is none of them, provided that headers came whole after it;
    // nor are whole headers and messages. Frames that belong to no call are forgiven at a slow
    // rate.
    uint64_t unfinished = 0;
    // Bytes that gRPC has read since the client last took an answer, while no call waits for its
    // message: headers that do not end. What is sent to calls
    // that were refused is answered, by more room to send.
    uint64_t unanswered = 0;
    // For how long bytes have waited for its client, which took none meanwhile.
    int64_t unread_us = 0;
  };
  // To be called again and again, by one thread.
  Bytes Look(int64_t now_us);

  bool ended() const;
  // Cuts the connection at once: what its client sent and nobody read is thrown away, gRPC sees an
  // error and lets go of its calls.
  void End();
  bool closed() const;
  // The connection has closed: the descriptor goes back, End does nothing from now on.
  void Closed();

 private:
  const uint64_t id_;
  const std::string peer_;
  const int64_t accepted_us_;

  void NoteRead(const tcp_info& facts, int64_t now_us) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts what is settled by now: all before the oldest message that is not whole.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Throws away what nobody has read, at both ends.
  void Dissolve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False when it has closed, and for Unix sockets.
  bool Facts(tcp_info* facts) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<int> running_{0};
  std::atomic<bool> authenticated_{false};
  std::atomic<int64_t> used_us_;

  mutable absl::Mutex mutex_;
  // Of the bytes received, those that are not unfinished, as of `taken_at_us_`.
  uint64_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t taken_at_us_ ABSL_GUARDED_BY(mutex_);
  // What gRPC had read when that was last noted; and what it had read so before some call began,
  // which is therefore no part of headers that still go on.
  int64_t read_at_us_ ABSL_GUARDED_BY(mutex_);
  uint64_t read_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t parsed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the calls that wait for their message: the parsed bytes at their begin, where it may start.
  std::multiset<uint64_t> message_begins_ ABSL_GUARDED_BY(mutex_);
  // What its client had acknowledged when that last changed, and what gRPC had read then.
  uint64_t answered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t read_at_answer_ ABSL_GUARDED_BY(mutex_) = 0;
  // What its client had acknowledged when that last changed or nothing waited for it.
  uint64_t acknowledged_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t acknowledged_at_us_ ABSL_GUARDED_BY(mutex_);
  int fd_ ABSL_GUARDED_BY(mutex_);
  bool identified_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::router
