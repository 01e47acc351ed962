// The way between the router and the simulated shards: connections that break and come back, calls
// that wait, arrive and run out of time, replies that come late, twice or in another order. Stands
// where HTTP/2 and gRPC stand in production (ShardClient); one thread. Knows nothing of what is in
// a message.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "router/shards/client.h"
#include "tests/sim/router/script.h"
#include "tests/sim/router/virtual_time.h"
#include "tests/sim/router/watch.h"

namespace weft::router::sim {

using CallId = uint64_t;

// The shards as the wire sees them.
class WireServer {
 public:
  virtual ~WireServer() = default;
  // The process of `rank` takes connections.
  virtual bool Listens(Rank rank) = 0;
  // A call is about to leave the router.
  virtual void OnSent(Rank rank, ShardCall call, const ShardCallTag& tag) = 0;
  // A call has come to a process that listens.
  virtual void OnCall(CallId id, Rank rank, ShardCall call, const ShardCallTag& tag,
                      const SharedBytes& request) = 0;
  // A reply comes to the router.
  virtual void OnDelivered(Rank rank, ShardCall call, const ShardCallTag& tag, bool ok) = 0;
  // The connection of `rank` broke: its claim is void.
  virtual void OnDisconnected(Rank rank) = 0;
};

class Wire : private Happening {
 public:
  Wire(const Settings& settings, VirtualTime* time, Watch* watch, WireServer* server);

  // A client of it; as ShardClientFactory.
  std::unique_ptr<ShardClient> MakeClient(Rank rank, ShardReplySink sink);

  struct How {
    int64_t late_us = 0;
    bool twice = false;
    // Instead of the reply: nothing, as if it was lost on the way.
    bool lost = false;
  };
  // Answers a call, unless nobody waits for it any more.
  void Reply(CallId id, absl::Status status, std::string body, const How& how);
  void Reply(CallId id, absl::Status status, std::string body = "") {
    Reply(id, std::move(status), std::move(body), How());
  }
  // The call comes once more, at `at_us`: whoever should read it is held up.
  void Later(CallId id, int64_t at_us) { time_->At(at_us, this, kArrive, id); }
  // The connection breaks, and everything on it; it comes back when the process listens.
  void Break(Rank rank);

 private:
  class Client;
  enum Event : uint32_t { kArrive, kDeliver, kExpire, kConnect };
  struct Pending {
    CallId id;
    ShardCall call;
    ShardCallTag tag;
    int64_t start_us;
    int64_t deadline_us;
    SharedBytes request;
    // Waits for a connection.
    bool waits;
  };
  struct Channel {
    ShardReplySink sink;
    bool connected = false;
    bool ever_connected = false;
    bool connecting = false;
    std::vector<Pending> pending;
    // Calls arrive in the order in which they were made.
    int64_t last_arrival_us = 0;
    // An expiry is planned for this time.
    int64_t expiry_us = VirtualTime::kNever;
  };
  struct Message {
    CallId id;
    ShardReply reply;
    // The caller may have had its answer already.
    bool again;
  };

  void OnTime(uint32_t kind, uint64_t value) override;
  void Call(Rank rank, ShardCall call, const SharedBytes& request, ShardCallTag tag,
            int64_t timeout_us, bool wait_for_ready);
  void Close(Rank rank);
  void Start(Rank rank, const Pending& pending);
  void Deliver(Message message, int64_t at_us);
  void Expire(Rank rank, int64_t planned_us);
  void Connect(Rank rank);
  void PlanConnect(Rank rank, int64_t wait_us);
  Pending* Find(CallId id);
  int64_t Way() { return draws_.Between(1, wire_us_max_); }
  static Rank RankOf(CallId id) { return static_cast<Rank>(id & 0xFF); }

  const int64_t wire_us_max_;
  VirtualTime* const time_;
  Watch* const watch_;
  WireServer* const server_;
  Draws draws_;
  std::vector<Channel> channels_;
  std::vector<Message> messages_;
  std::vector<uint32_t> free_messages_;
  uint64_t next_call_ = 1;
};

}  // namespace weft::router::sim
