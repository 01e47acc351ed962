// Fuzz target: what shards may answer, true and false, late, twice and in any order, while they die
// and time passes. The group forms, loses and forms again as its listener was promised: no answer
// but of a step in flight, in order, within the epoch that was announced. An answer is the true one
// with the input's bytes behind it, which protobuf reads as fields that replace or add to it.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "google/protobuf/stubs/logging.h"
#include "router/shards/group.h"
#include "tests/support/fuzz_input.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

constexpr Rank kWorld = 2;
constexpr uint64_t kRouterId = 7;

// Keeps the calls that wait for their answers.
class Client : public ShardClient {
 public:
  struct Sent {
    ShardCall call;
    ShardCallTag tag;
  };

  void Call(ShardCall call, const SharedBytes&, ShardCallTag tag, int64_t timeout_us,
            bool) override {
    WEFT_CHECK_GT(timeout_us, 0);
    sent.push_back({call, tag});
    WEFT_CHECK_LT(sent.size(), size_t{10'000});
  }
  bool Connected() override { return connected; }
  bool is_local() const override { return true; }

  std::deque<Sent> sent;
  bool connected = true;
};

class World : public ShardGroupListener, public ShardRestarter {
 public:
  World() {
    ShardGroupOptions options;
    options.router_id = kRouterId;
    options.health.read_cpu = [](const ShardProcess&) { return std::nullopt; };
    std::vector<std::unique_ptr<ShardClient>> clients;
    for (Rank rank = 0; rank < kWorld; ++rank) {
      auto client = std::make_unique<Client>();
      clients_.push_back(client.get());
      clients.push_back(std::move(client));
    }
    static Probe probe;
    group_ = std::make_unique<ShardGroup>(options, std::move(clients), this, &probe, this);
  }

  void Play(test::FuzzInput input) {
    for (int i = 0; i < 250 && !input.empty(); ++i) Event(input);
  }

 private:
  void Event(test::FuzzInput& input) {
    const uint8_t event = input.Byte();
    const Rank rank = event / 16 % kWorld;
    switch (event % 8) {
      case 0:
        now_us_ += int64_t{1} << input.Byte() % 26;
        group_->OnTimer(now_us_);
        break;
      case 1:
        if (group_->state() == GroupState::kServing &&
            next_step_ < answered_ + 1 + kStepsInFlightMax) {
          group_->SendStep(ShardCall::kDecode, next_step_++, std::make_shared<const std::string>(),
                           now_us_);
        }
        break;
      case 2:
        clients_[rank]->connected = !clients_[rank]->connected;
        break;
      case 3:
        group_->OnShardDied({rank, 100 + rank}, now_us_);
        break;
      default:
        Answer(rank, input);
    }
  }

  void Answer(Rank rank, test::FuzzInput& input) {
    const uint8_t choice = input.Byte();
    Client& client = *clients_[rank];
    if (client.sent.empty()) return;
    const size_t which = choice % std::min<size_t>(client.sent.size(), 4);
    const Client::Sent sent = client.sent[which];
    // A claim is answered only to end it.
    if (sent.call == ShardCall::kHold && choice % 64 != 61) return;
    ShardReply reply;
    reply.rank = rank;
    reply.call = sent.call;
    reply.tag = sent.tag;
    reply.call_us = 10;
    if (choice % 16 == 15) {
      reply.status = absl::Status(static_cast<absl::StatusCode>(1 + input.Byte() % 16), "fuzz");
    } else {
      reply.body = Truth(rank, sent);
      if (choice >= 128) reply.body.append(std::string(input.Piece()));
    }
    // Transports answer once; a shard's number may still come twice.
    if (choice % 32 != 14) client.sent.erase(client.sent.begin() + static_cast<ptrdiff_t>(which));
    group_->OnReply(std::move(reply), now_us_);
  }

  std::string Truth(Rank rank, const Client::Sent& sent) const {
    switch (sent.call) {
      case ShardCall::kInfo:
        return Info(rank).SerializeAsString();
      case ShardCall::kRendezvous: {
        wire::RendezvousResponse response;
        response.set_token("t");
        return response.SerializeAsString();
      }
      case ShardCall::kWarmup: {
        wire::WarmupResponse response;
        response.add_kv_blocks(10);
        return response.SerializeAsString();
      }
      case ShardCall::kDecode: {
        wire::StepResponse response;
        response.set_epoch(sent.tag.epoch);
        response.set_step(sent.tag.number);
        response.set_ids_hash(HashIds(response.ids()));
        return response.SerializeAsString();
      }
      default:
        return "";
    }
  }

  wire::InfoResponse Info(Rank rank) const {
    wire::InfoResponse info;
    info.set_protocol_version(kShardProtocolVersion);
    info.set_rank(rank);
    info.set_world(kWorld);
    info.set_state(serving_ ? wire::SHARD_STATE_JOINED : wire::SHARD_STATE_READY);
    info.set_epoch(group_->epoch());
    info.add_kv_groups()->set_block_tokens(16);
    info.set_running_max(8);
    info.set_step_tokens_max(64);
    info.set_context_tokens(100);
    info.set_pid(100 + rank);
    info.set_holder_router_id(kRouterId);
    return info;
  }

  // -- What the group promises its listener
  void OnGroupFormed(const FormedGroup& group, int64_t) override {
    WEFT_CHECK(!serving_ && !fatal_);
    WEFT_CHECK_GT(group.kv_blocks, 0u);
    WEFT_CHECK_GT(group.agreement.running_max, 0u);
    WEFT_CHECK_GT(group.agreement.step_tokens_max, 0u);
    WEFT_CHECK_GT(group_->epoch(), epoch_);
    epoch_ = group_->epoch();
    serving_ = true;
    next_step_ = 1;
    answered_ = 0;
  }
  void OnGroupLost(const absl::Status& why, int64_t) override {
    WEFT_CHECK(serving_ && !why.ok());
    serving_ = false;
  }
  void OnStepAnswer(const StepAnswer& answer, int64_t) override {
    WEFT_CHECK(serving_);
    WEFT_CHECK_EQ(answer.response.epoch(), epoch_);
    WEFT_CHECK_EQ(answer.response.step(), ++answered_);
    WEFT_CHECK_LT(answered_, next_step_);
    WEFT_CHECK_EQ(answer.response.ids_hash(), HashIds(answer.response.ids()));
  }
  void OnGroupFatal(const absl::Status& why) override {
    WEFT_CHECK(!fatal_ && !why.ok());
    fatal_ = true;
  }
  void Restart(Rank rank, uint64_t, const std::string&) override { WEFT_CHECK_LT(rank, kWorld); }

  std::vector<Client*> clients_;
  std::unique_ptr<ShardGroup> group_;
  int64_t now_us_ = 1'000'000;
  bool serving_ = false;
  bool fatal_ = false;
  Epoch epoch_ = 0;
  StepNumber next_step_ = 1;
  StepNumber answered_ = 0;
};

}  // namespace
}  // namespace weft::router

// The log of groups that form and fall would be most of the time.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::router::World world;
  world.Play(weft::test::FuzzInput(data, size));
  return 0;
}
