// One simulated world: a whole router between doors and sockets (Serving: admission, text pools,
// engine loop, scheduler, shard group, answers) on virtual time, with the clients, tenants, shards
// and faults of a script around it, and everything that must be true of it. Runs in one thread; a
// broken invariant ends the process with a message (runner.h gives it a process of its own).

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "router/observe/probe.h"
#include "router/serving.h"
#include "tests/sim/router/clients.h"
#include "tests/sim/router/fake_shards.h"
#include "tests/sim/router/loops.h"
#include "tests/sim/router/script.h"
#include "tests/sim/router/virtual_time.h"
#include "tests/sim/router/watch.h"

namespace weft::router::sim {

class World : private Watch, private GroupsWatch, private Happening {
 public:
  // `counts` grows as it runs.
  World(const Script& script, Counts* counts);
  ~World() override;

  // Until the script is played, everything has ended, and the router is shut down.
  void Run();
  // On the script's clock.
  int64_t NowUs() const { return time_.NowUs() - kOriginUs; }

 private:
  // Time at which a script's 0 is.
  static constexpr int64_t kOriginUs = 1'000'000;
  struct SimTenant {
    TenantRef tenant;
    // Requests and tokenisations of it that are here.
    uint32_t here = 0;
  };

  // A group's shards, and what they tell.
  class Group;
  class Restarters;

  // -- Playing
  void MakeRouter();
  void OnTime(uint32_t kind, uint64_t index) override;
  void Ask(const Action& action);
  void Cancel(const Action& action);
  void Tokenize(const Action& action);
  void Stall(const Action& action);
  // Lets time pass until `done`, which must come before `limit_us`; `what` is waited for.
  void RunUntil(absl::FunctionRef<bool()> done, int64_t limit_us, absl::string_view what);
  bool AllEnded() const;
  bool Serving_() const { return serving_->Status().state == ServerState::kReady; }
  void AskOnceMore();
  void ShutDown();

  // -- Watch
  [[noreturn]] void Violated(absl::string_view invariant, const std::string& what) override;
  void OnEvent() override;
  Counts& counts() override { return *counts_; }
  void OnRefused(int64_t request, const absl::Status& why) override;
  void OnEnd(int64_t request) override;
  SeenChunk OnChunk(const weft::shard::v1::Chunk& chunk) override;
  SeenChunk OnGroupChunk(uint32_t group, const weft::shard::v1::Chunk& chunk) override;
  void OnGroupPool(uint32_t group, uint32_t kv_blocks) override;
  void OnFalseToken(SequenceId sequence) override;
  void OnInvalidRow(SequenceId sequence) override;
  void OnPool(uint32_t kv_blocks) override;

  // -- What must be true (world_checks.cc)
  void CheckCheap();
  void CheckAll();
  void CheckPlaces();
  // The places of all groups together.
  uint32_t Places() const;
  const Scheduler* SchedulerOf(uint32_t group) const;
  // That of a group that has formed, or null.
  const Scheduler* AnyScheduler() const;
  bool AllWell() const;
  bool AllServe() const;
  bool GroupsIdle() const;
  void CheckAtEnd();
  void CheckSampling(const Client& client, const weft::shard::v1::Chunk& chunk);
  void CheckFailure(const Client& client, const absl::Status& status);
  void CheckInvalid(const Client& client, const absl::Status& status);
  // The shards of a group, or of all, have served nobody for as long as requests wait for them.
  bool NotBackInTime() const;
  bool NoneBackInTime() const;
  // The longest request that a pool of so many blocks bears.
  uint64_t RequestTokensMax(uint32_t kv_blocks) const;
  // Requests and tokenisations that hold a permit.
  uint32_t Here() const;
  Client& Get(int64_t request) { return *clients_.at(request); }

  const Script script_;
  const Settings& settings_;
  Counts* const counts_;
  const testing::MockShape shape_;
  VirtualTime time_;
  Draws ids_;
  SimExecutor executor_;
  std::vector<std::unique_ptr<Group>> groups_;
  Probe* const probe_;
  std::vector<SimTenant> tenants_;
  // By request id, also those that were refused.
  std::map<int64_t, std::shared_ptr<Client>> clients_;
  std::map<SequenceId, Client*> by_sequence_;
  // Those that were taken and not seen to be gone.
  std::vector<Client*> here_;
  std::unique_ptr<Serving> serving_;

  size_t played_ = 0;
  uint32_t tokenizing_ = 0;
  bool full_due_ = false;
  bool draining_ = false;
  bool shutting_down_ = false;
  bool fatal_ = false;
  int64_t stalled_until_us_ = 0;
  // By group; 0 before it has formed.
  std::vector<uint32_t> pools_;
  // Where requests ran.
  std::map<SequenceId, uint32_t> group_of_;
  uint32_t smallest_pool_ = 0;
  uint32_t largest_pool_ = 0;
  std::string now_;
};

}  // namespace weft::router::sim
