// A shard group on a clock that the test moves, with shards that the test answers for: what the
// group sends is kept, and nothing is answered unless the test does. One thread, the test's.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/shards/group.h"

namespace weft::router {

inline constexpr uint64_t kGroupRouterId = 7;

// One rank as the test plays it.
class FakeShardClient : public ShardClient {
 public:
  struct Sent {
    ShardCall call;
    SharedBytes request;
    ShardCallTag tag;
    int64_t timeout_us;
  };

  void Call(ShardCall call, const SharedBytes& request, ShardCallTag tag, int64_t timeout_us,
            bool) override {
    sent.push_back({call, request, tag, timeout_us});
  }
  bool Connected() override { return connected; }
  bool is_local() const override { return true; }

  std::vector<Sent> sent;
  bool connected = true;
};

struct GroupRig : ShardGroupListener, ShardRestarter {
  explicit GroupRig(uint32_t world, int64_t hang_timeout_ms = 0, bool supervised = true);

  void OnGroupFormed(const FormedGroup& group, int64_t) override {
    ++formed;
    kv_blocks = group.kv_blocks;
  }
  void OnGroupLost(const absl::Status& why, int64_t) override {
    ++lost;
    lost_why = why;
  }
  void OnStepAnswer(const StepAnswer& answer, int64_t) override {
    steps_answered.push_back(answer.response.step());
  }
  void OnGroupFatal(const absl::Status& why) override { fatal = why; }
  void Restart(Rank rank, uint64_t, const std::string&) override { restarted.push_back(rank); }

  // How often `call` was sent to `rank`.
  size_t Count(Rank rank, ShardCall call) const;
  // The last `call` that was sent to `rank`.
  FakeShardClient::Sent Last(Rank rank, ShardCall call) const;
  // Answers the last `call` of `rank`.
  void Answer(Rank rank, ShardCall call, const absl::Status& status, std::string body = "");
  // Answers a `call` of `rank` that was sent with `tag`.
  void AnswerTagged(Rank rank, ShardCall call, ShardCallTag tag, const absl::Status& status,
                    std::string body = "");
  // Lets time pass and answers every question of how a rank is.
  void Poll();
  void Grant();
  // Every rank has left the epoch and is READY.
  void Leave();
  // The shard of `rank` comes back as another process.
  void Replace(Rank rank, uint64_t pid, uint64_t start_ticks);
  // What weft_shard_restarts_total says, all reasons together.
  int Restarts();
  // From READY shards to an epoch whose shards are asked to warm up.
  void Join();
  // Every rank answers Warmup with so many blocks for each group.
  void Warm(const std::vector<uint32_t>& kv_blocks_by_group);
  // To an epoch that serves.
  void Form();
  // Sends a decode step to all ranks.
  void SendStep(StepNumber step);
  // What a rank answers to a step without rows.
  static std::string StepAnswerBytes(Epoch epoch, StepNumber step);

  int64_t now_us = 1'000'000;
  std::optional<int64_t> cpu_us;
  int formed = 0;
  uint32_t kv_blocks = 0;
  int lost = 0;
  absl::Status lost_why;
  std::vector<StepNumber> steps_answered;
  absl::Status fatal;
  std::vector<Rank> restarted;
  Probe probe;
  std::vector<weft::shard::v1::InfoResponse> infos;
  std::vector<FakeShardClient*> clients;
  std::unique_ptr<ShardGroup> group;
};

}  // namespace weft::router
