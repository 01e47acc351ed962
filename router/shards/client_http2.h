// The way to a shard of this host: gRPC over a plain HTTP/2 connection that the engine loop's own
// thread serves, so that a step costs no other thread a wake-up (docs/decisions/009). Owned by the
// shard group; all calls come from the engine loop's thread, replies are handed over on it. It
// connects by itself, waits 10 to 200 ms between attempts, and never repeats a call.

#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "router/shards/client.h"
#include "router/shards/http2_session.h"
#include "router/shards/poller.h"

namespace weft::router {

// A socket address of this host.
struct LocalAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

class Http2ShardClient : public ShardClient, private PollTarget {
 public:
  // `name` is what --shard calls `address`. `poller` and `clock` must outlive this.
  // A connection whose stream ids have passed `worn_at` is replaced when no call is on its way but
  // a claim, which is made anew on the next one.
  Http2ShardClient(Rank rank, std::string name, const LocalAddress& address, ShardReplySink sink,
                   Poller* poller, const Clock* clock,
                   Http2StreamId worn_at = Http2Session::kWornAt);
  ~Http2ShardClient() override;

  void Call(ShardCall call, const SharedBytes& request, ShardCallTag tag, int64_t timeout_us,
            bool wait_for_ready) override;
  bool Connected() override { return renewing_ || ready(); }
  bool is_local() const override { return address_.bytes.ss_family == AF_UNIX; }

  // Connections made so far.
  uint64_t connections() const { return connections_; }

 private:
  struct PendingCall {
    ShardReply reply;
    SharedBytes request;
    int64_t start_us = 0;
    int64_t deadline_us = 0;
    bool wait_for_ready = false;
  };

  // -- PollTarget
  int fd() const override { return fd_; }
  short events() const override;
  int64_t timer_us() const override;
  void OnReady(short events, int64_t now_us) override;
  void OnTimer(int64_t now_us) override;

  bool ready() const { return session_ != nullptr && session_->ready(); }
  void Connect(int64_t now_us);
  // No call is on its way but the claim, which has no end.
  bool Idle() const;
  // Puts a new connection in a worn one's place; calls made meanwhile wait for it.
  void Renew(int64_t now_us);
  void OnConnected(int64_t now_us);
  // Back to no connection; calls stay as they are.
  void CloseConnection();
  // Ends the connection and every call on it, and plans the next attempt.
  void Break(const absl::Status& why, int64_t now_us);
  void Read(int64_t now_us);
  // Writes what the session has to say.
  void Flush(int64_t now_us);
  // Hands a call to the session; it must be ready.
  void Start(PendingCall call, int64_t now_us);
  void Finish(PendingCall& call, absl::Status status, std::string body);
  void Expire(int64_t now_us);

  const Rank rank_;
  const std::string name_;
  const LocalAddress address_;
  const ShardReplySink sink_;
  Poller* const poller_;
  const Clock* const clock_;
  const Http2StreamId worn_at_;
  const std::vector<std::string> paths_;

  int fd_ = -1;
  // connect(2) has not answered.
  bool connecting_ = false;
  bool renewing_ = false;
  uint64_t connections_ = 0;
  std::unique_ptr<Http2Session> session_;
  absl::flat_hash_map<Http2StreamId, PendingCall> calls_;
  // Those that wait for a connection.
  std::vector<PendingCall> waiting_;
  // Why there is none.
  absl::Status broken_;
  std::string output_;
  size_t output_at_ = 0;
  std::vector<char> input_;
  // Without a connection: the next attempt. With one: when the peer must have said something.
  int64_t due_us_ = 0;
  int64_t backoff_us_;
  // A keepalive ping is out.
  bool pinged_ = false;
};

}  // namespace weft::router
