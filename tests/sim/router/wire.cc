#include "tests/sim/router/wire.h"

#include <algorithm>
#include <utility>

namespace weft::router::sim {
namespace {

constexpr int64_t kReconnectUs = 20'000;

}  // namespace

class Wire::Client : public ShardClient {
 public:
  Client(Rank rank, Wire* wire) : rank_(rank), wire_(*wire) {}
  ~Client() override { wire_.Close(rank_); }

  void Call(ShardCall call, const SharedBytes& request, ShardCallTag tag, int64_t timeout_us,
            bool wait_for_ready) override {
    wire_.Call(rank_, call, request, tag, timeout_us, wait_for_ready);
  }
  bool Connected() override { return wire_.channels_[rank_].connected; }
  bool is_local() const override { return true; }

 private:
  const Rank rank_;
  Wire& wire_;
};

Wire::Wire(const Settings& settings, VirtualTime* time, Watch* watch, WireServer* server)
    : wire_us_max_(settings.wire_us_max),
      time_(time),
      watch_(watch),
      server_(server),
      draws_(static_cast<uint64_t>(settings.seed), 1001),
      channels_(static_cast<size_t>(settings.world)) {}

std::unique_ptr<ShardClient> Wire::MakeClient(Rank rank, ShardReplySink sink) {
  channels_[rank].sink = std::move(sink);
  PlanConnect(rank, 0);
  return std::make_unique<Client>(rank, this);
}

void Wire::OnTime(uint32_t kind, uint64_t value) {
  switch (kind) {
    case kArrive: {
      const Pending* const pending = Find(value);
      if (pending == nullptr || pending->waits) return;
      ++watch_->counts().calls;
      watch_->OnEvent();
      const Pending call = *pending;
      return server_->OnCall(value, RankOf(value), call.call, call.tag, call.request);
    }
    case kDeliver: {
      Message message = std::move(messages_[value]);
      free_messages_.push_back(static_cast<uint32_t>(value));
      Channel& channel = channels_[message.reply.rank];
      Pending* const pending = Find(message.id);
      if ((pending == nullptr && !message.again) || channel.sink == nullptr) return;
      if (pending != nullptr) {
        message.reply.call_us = time_->NowUs() - pending->start_us;
        channel.pending.erase(channel.pending.begin() + (pending - channel.pending.data()));
      }
      ++watch_->counts().replies;
      watch_->OnEvent();
      server_->OnDelivered(message.reply.rank, message.reply.call, message.reply.tag,
                           message.reply.status.ok());
      return channel.sink(std::move(message.reply));
    }
    case kExpire:
      return Expire(static_cast<Rank>(value), time_->NowUs());
    case kConnect:
      return Connect(static_cast<Rank>(value));
  }
}

void Wire::Call(Rank rank, ShardCall call, const SharedBytes& request, ShardCallTag tag,
                int64_t timeout_us, bool wait_for_ready) {
  server_->OnSent(rank, call, tag);
  Channel& channel = channels_[rank];
  const int64_t now_us = time_->NowUs();
  const CallId id = next_call_++ << 8 | rank;
  Pending pending{id, call, tag, now_us, now_us + timeout_us, request, !channel.connected};
  channel.pending.push_back(pending);
  if (pending.deadline_us < channel.expiry_us) {
    channel.expiry_us = pending.deadline_us;
    time_->At(channel.expiry_us, this, kExpire, rank);
  }
  if (channel.connected) return Start(rank, pending);
  if (!wait_for_ready) Reply(id, absl::UnavailableError("no connection"));
}

void Wire::Start(Rank rank, const Pending& pending) {
  Channel& channel = channels_[rank];
  channel.last_arrival_us = std::max(channel.last_arrival_us, time_->NowUs() + Way());
  time_->At(channel.last_arrival_us, this, kArrive, pending.id);
}

void Wire::Reply(CallId id, absl::Status status, std::string body, const How& how) {
  const Pending* const pending = Find(id);
  if (pending == nullptr || how.lost) return;
  Message message{id, {}, false};
  message.reply.rank = RankOf(id);
  message.reply.call = pending->call;
  message.reply.tag = pending->tag;
  message.reply.status = std::move(status);
  message.reply.body = std::move(body);
  const int64_t at_us = time_->NowUs() + Way() + how.late_us;
  if (how.twice) {
    Message again = message;
    again.again = true;
    Deliver(std::move(again), at_us + draws_.Below(2'000));
  }
  Deliver(std::move(message), at_us);
}

void Wire::Deliver(Message message, int64_t at_us) {
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const uint32_t place = free_messages_.back();
  free_messages_.pop_back();
  messages_[place] = std::move(message);
  time_->At(at_us, this, kDeliver, place);
}

void Wire::Break(Rank rank) {
  Channel& channel = channels_[rank];
  if (!channel.connected) return;
  channel.connected = false;
  server_->OnDisconnected(rank);
  std::vector<Pending> broken;
  broken.swap(channel.pending);
  for (Pending& pending : broken) {
    Message message{pending.id, {}, true};
    message.reply.rank = rank;
    message.reply.call = pending.call;
    message.reply.tag = pending.tag;
    message.reply.status = absl::UnavailableError("the connection broke");
    message.reply.call_us = time_->NowUs() - pending.start_us;
    Deliver(std::move(message), time_->NowUs());
  }
  PlanConnect(rank, kReconnectUs);
}

void Wire::PlanConnect(Rank rank, int64_t wait_us) {
  Channel& channel = channels_[rank];
  if (channel.connecting) return;
  channel.connecting = true;
  time_->At(time_->NowUs() + wait_us, this, kConnect, rank);
}

void Wire::Connect(Rank rank) {
  Channel& channel = channels_[rank];
  channel.connecting = false;
  if (channel.connected || channel.sink == nullptr) return;
  if (!server_->Listens(rank)) return PlanConnect(rank, kReconnectUs);
  channel.connected = channel.ever_connected = true;
  for (Pending& pending : channel.pending) {
    if (!pending.waits) continue;
    pending.waits = false;
    Start(rank, pending);
  }
}

void Wire::Expire(Rank rank, int64_t planned_us) {
  Channel& channel = channels_[rank];
  if (channel.expiry_us != planned_us) return;
  channel.expiry_us = VirtualTime::kNever;
  std::vector<Pending> expired;
  for (size_t i = 0; i < channel.pending.size();) {
    if (channel.pending[i].deadline_us <= planned_us) {
      expired.push_back(channel.pending[i]);
      channel.pending.erase(channel.pending.begin() + static_cast<ptrdiff_t>(i));
    } else {
      channel.expiry_us = std::min(channel.expiry_us, channel.pending[i].deadline_us);
      ++i;
    }
  }
  if (channel.expiry_us < VirtualTime::kNever) {
    time_->At(channel.expiry_us, this, kExpire, rank);
  }
  for (const Pending& pending : expired) {
    Message message{pending.id, {}, true};
    message.reply.rank = rank;
    message.reply.call = pending.call;
    message.reply.tag = pending.tag;
    message.reply.status = absl::DeadlineExceededError("the call took too long");
    message.reply.call_us = planned_us - pending.start_us;
    Deliver(std::move(message), planned_us);
  }
}

void Wire::Close(Rank rank) {
  Channel& channel = channels_[rank];
  channel.pending.clear();
  channel.sink = nullptr;
  if (channel.connected) server_->OnDisconnected(rank);
  channel.connected = false;
}

Wire::Pending* Wire::Find(CallId id) {
  for (Pending& pending : channels_[RankOf(id)].pending) {
    if (pending.id == id) return &pending;
  }
  return nullptr;
}

}  // namespace weft::router::sim
