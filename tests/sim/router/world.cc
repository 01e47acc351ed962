#include "tests/sim/router/world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/errors.h"
#include "tests/sim/router/fake_tokenizer.h"

namespace weft::router::sim {
namespace {

// After the script a request must have ended within so long: each step whose answer was lost is
// given up after 600 s, and slow clients read on.
constexpr int64_t kPatienceUs = 20'000'000'000;
// Between two tries at the end: a step whose answer was lost is waited for.
constexpr int64_t kAgainUs = 40'000'000;
// Events of a world; more mean that something turns in a circle.
constexpr uint64_t kEventsMax = 20'000'000;
// Shards may still end a step when the router knows already that the group is lost.
constexpr int64_t kNewsUs = 50'000;

// The metrics of all worlds of a process: making them costs more than many a world.
Probe* TheProbe() {
  static Probe* const probe = new Probe(kContextTokensMax);
  return probe;
}

EngineOptions OptionsOf(const Settings& settings) {
  EngineOptions options;
  for (int64_t group = 0; group < settings.groups; ++group) {
    options.groups.emplace_back(static_cast<size_t>(settings.world), absl::StrCat(group));
  }
  options.text_threads = options.mask_threads = static_cast<uint32_t>(settings.text_threads);
  options.running_max = static_cast<uint32_t>(settings.running_max);
  options.step_tokens_max = static_cast<uint32_t>(settings.step_tokens_max);
  options.queue_requests_max = static_cast<uint32_t>(settings.queue_requests_max);
  options.queue_tokens_max = static_cast<uint64_t>(settings.queue_tokens_max);
  options.text_bytes_max = static_cast<size_t>(settings.text_bytes_max);
  options.queue_timeout_s = settings.queue_timeout_s;
  options.recovery_timeout_s = settings.recovery_timeout_s;
  options.hang_timeout_ms = settings.hang_timeout_ms;
  options.inter_token_target_us = static_cast<uint32_t>(settings.inter_token_target_us);
  options.prefix_cache = settings.prefix_cache != 0;
  return options;
}

}  // namespace

// Hands on what the shards of a group tell, and knows which group that is.
class World::Group : public Watch {
 public:
  Group(uint32_t group, const Settings& settings, VirtualTime* time, World* world)
      : group_(group), world_(*world), shards_(group, settings, time, this) {}
  FakeShards& shards() { return shards_; }

 private:
  [[noreturn]] void Violated(absl::string_view invariant, const std::string& what) override {
    world_.Violated(invariant, what);
    std::abort();  // never reached
  }
  void OnEvent() override { world_.OnEvent(); }
  Counts& counts() override { return world_.counts(); }
  void OnRefused(int64_t, const absl::Status&) override {}
  void OnEnd(int64_t) override {}
  SeenChunk OnChunk(const weft::shard::v1::Chunk& chunk) override {
    return world_.OnGroupChunk(group_, chunk);
  }
  void OnFalseToken(SequenceId sequence) override { world_.OnFalseToken(sequence); }
  void OnInvalidRow(SequenceId sequence) override { world_.OnInvalidRow(sequence); }
  void OnPool(uint32_t kv_blocks) override { world_.OnGroupPool(group_, kv_blocks); }

  const uint32_t group_;
  World& world_;
  FakeShards shards_;
};

// The supervisor counts ranks through all groups.
class World::Restarters : public ShardRestarter {
 public:
  Restarters(World* world, std::function<void(ShardDeath)> on_death) {
    world_ = static_cast<Rank>(world->settings_.world);
    for (Rank first = 0; const auto& group : world->groups_) {
      groups_.push_back(group->shards().MakeRestarter([on_death, first](ShardDeath death) {
        death.rank += first;
        on_death(std::move(death));
      }));
      first += world_;
    }
  }
  void Restart(Rank rank, uint64_t pid, const std::string& reason) override {
    groups_[rank / world_]->Restart(rank % world_, pid, reason);
  }

 private:
  Rank world_ = 0;
  std::vector<std::unique_ptr<ShardRestarter>> groups_;
};

World::World(const Script& script, Counts* counts)
    : script_(script),
      settings_(script_.settings),
      counts_(counts),
      shape_(ShapeOf(settings_)),
      ids_(static_cast<uint64_t>(settings_.seed), 1003),
      executor_(static_cast<uint64_t>(settings_.seed), settings_.wake_us_max, &time_,
                [this] {
                  ++counts_->turns;
                  OnEvent();
                }),
      probe_(TheProbe()),
      pools_(static_cast<size_t>(settings_.groups)) {
  for (uint32_t group = 0; group < settings_.groups; ++group) {
    groups_.push_back(std::make_unique<Group>(group, settings_, &time_, this));
  }
  for (uint32_t index = 0; index < settings_.tenants; ++index) {
    auto tenant = std::make_shared<Tenant>();
    tenant->name = absl::StrCat("tenant-", index);
    tenant->index = index;
    tenant->cache_salt = Mix(index + 77);
    tenant->limits.weight = 1 + index;
    if (index > 0 && settings_.tenant_requests_max > 0) {
      tenant->limits.requests_max = static_cast<uint32_t>(settings_.tenant_requests_max);
    }
    if (index > 0 && settings_.tenant_tokens_per_minute > 0) {
      tenant->limits.tokens_per_minute = static_cast<uint64_t>(settings_.tenant_tokens_per_minute);
    }
    tenant->meter = std::make_shared<TenantMeter>(tenant->name, tenant->limits, &time_);
    tenants_.push_back({tenant, 0});
  }
  MakeRouter();
}

World::~World() = default;

void World::MakeRouter() {
  EngineOptions options = OptionsOf(settings_);
  options.on_fatal = [this](const absl::Status&) {
    fatal_ = true;
    ++counts_->fatal;
  };
  options.make_shard_client = [this](Rank rank, const std::string& group, const ShardTls&,
                                     ShardReplySink sink, Poller*, const Clock*) {
    return absl::StatusOr<std::unique_ptr<ShardClient>>(
        groups_[std::stoul(group)]->shards().MakeClient(rank, std::move(sink)));
  };
  options.runtime.stream_batches_max = static_cast<size_t>(settings_.stream_batches_max);
  options.runtime.clock = &time_;
  options.runtime.executor = &executor_;
  options.runtime.make_poller = [this](const Clock*) { return executor_.MakePoller(); };
  options.runtime.random_id = [this] { return std::max<uint64_t>(ids_.Next(), 1); };
  options.runtime.read_cpu = [this](const ShardProcess& process) {
    for (const auto& group : groups_) {
      const std::optional<int64_t> cpu_us = group->shards().ReadCpuUs(process);
      if (cpu_us.has_value()) return cpu_us;
    }
    return std::optional<int64_t>();
  };
  options.runtime.make_restarter =
      [this](const std::string&,
             std::function<void(ShardDeath)> on_death) -> std::unique_ptr<ShardRestarter> {
    if (settings_.supervisor == 0) return nullptr;
    return std::make_unique<Restarters>(this, std::move(on_death));
  };
  ModelText text;
  text.eos_ids = {kEndId};
  text.context_tokens = static_cast<uint32_t>(settings_.context_tokens);
  text.model_name = "simulated";
  serving_ =
      std::make_unique<Serving>(std::move(options), std::move(text), MakeFakeTokenizer(),
                                TokenizerFingerprint(), nullptr, nullptr, AnswerDefaults(), probe_);
  const absl::Status started = serving_->Start();
  WEFT_CHECK_MSG(started.ok(), std::string(started.message()).c_str());
}

// -- Playing -------------------------------------------------------------------------------------

void World::Run() {
  for (size_t i = 0; i < script_.actions.size(); ++i) {
    time_.At(kOriginUs + script_.actions[i].at_us, this, 0, i);
  }
  const int64_t end_us =
      kOriginUs + (script_.actions.empty() ? 0 : script_.actions.back().at_us) + kPatienceUs;
  RunUntil([this] { return played_ == script_.actions.size() && AllEnded(); }, end_us,
           "all requests end");
  if (!fatal_ && !draining_) AskOnceMore();
  CheckAtEnd();
  ShutDown();
}

void World::RunUntil(absl::FunctionRef<bool()> done, int64_t limit_us, absl::string_view what) {
  while (!done()) {
    const bool late = time_.NowUs() > limit_us || counts_->events > kEventsMax;
    if (late || !time_.Next()) {
      std::string open;
      for (const auto& [id, client] : clients_) {
        if (client->accepted() && !client->gone()) absl::StrAppend(&open, " ", id);
      }
      Violated("end.once",
               absl::StrCat("nothing makes that ", what, "; open requests:", open,
                            "; the server is ", static_cast<int>(serving_->Status().state), ": ",
                            serving_->Status().detail));
    }
    if (!full_due_) continue;
    full_due_ = false;
    CheckAll();
  }
}

void World::OnTime(uint32_t, uint64_t index) {
  const Action& action = script_.actions[index];
  now_ = ToText(action);
  ++played_;
  OnEvent();
  switch (action.kind) {
    case Kind::kRequest:
      return Ask(action);
    case Kind::kCancel:
      return Cancel(action);
    case Kind::kTokenize:
      return Tokenize(action);
    case Kind::kDrain:
      draining_ = true;
      ++counts_->drains;
      return serving_->StartDrain(absl::Microseconds(action.us));
    case Kind::kFlush:
      ++counts_->flushes;
      // Refused only while the queue of an engine loop is full.
      return serving_->FlushPrefixCache().IgnoreError();
    case Kind::kStall:
      return Stall(action);
    default: {
      const int64_t group = action.rank / settings_.world;
      if (group >= settings_.groups) return;
      Action own = action;
      own.rank %= settings_.world;
      return groups_[static_cast<size_t>(group)]->shards().Do(own);
    }
  }
}

void World::Ask(const Action& action) {
  if (clients_.contains(action.id) || action.tenant >= settings_.tenants) return;
  ++counts_->requests;
  auto client = std::make_shared<Client>(action, settings_, shape_.vocabulary, &time_,
                                         static_cast<Watch*>(this));
  clients_[action.id] = client;
  const TenantRef& tenant = tenants_[static_cast<size_t>(action.tenant)].tenant;
  client->Ask(serving_.get(), tenant, client);
  if (!client->accepted()) return;
  if (draining_) {
    Violated("scope.one",
             absl::StrCat("request ", action.id, " is taken although the router drains"));
  }
  by_sequence_[client->sequence()] = client.get();
  here_.push_back(client.get());
}

void World::Cancel(const Action& action) {
  const auto found = clients_.find(action.id);
  if (found == clients_.end() || action.tenant >= settings_.tenants) return;
  Client& client = *found->second;
  const bool cancelled =
      serving_->Cancel(*tenants_[static_cast<size_t>(action.tenant)].tenant, client.name());
  if (!cancelled) return;
  if (action.tenant != client.action().tenant) {
    Violated("who.pays", absl::StrCat("tenant ", action.tenant, " cancelled request ", action.id));
  }
  client.SetUnwanted(time_.NowUs());
}

void World::Tokenize(const Action& action) {
  if (action.tenant >= settings_.tenants) return;
  const TenantRef& tenant = tenants_[static_cast<size_t>(action.tenant)].tenant;
  std::string text(static_cast<size_t>(action.prompt), 'x');
  absl::StatusOr<Admission::Permit> permit = serving_->EnterText(tenant, text.size());
  if (!permit.ok()) {
    // What a tenant may have in a minute is used up by those who were here before.
    if (Here() == 0 && ErrorReason(permit.status()) != "TENANT_TOKENS") {
      Violated("pay.first", "a text is refused although nobody is here");
    }
    return;
  }
  ++tokenizing_;
  ++tenants_[static_cast<size_t>(action.tenant)].here;
  auto answered = std::make_shared<bool>(false);
  const size_t bytes = text.size();
  serving_->Tokenize(
      std::move(text), false, *std::move(permit), nullptr,
      [this, answered, bytes, index = action.tenant](const absl::StatusOr<TokenizeResult>& result) {
        if (*answered) Violated("end.once", "a text is answered twice");
        *answered = true;
        --tokenizing_;
        --tenants_[static_cast<size_t>(index)].here;
        if (result.ok() && result->ids.size() != bytes) {
          Violated("state.log", "a text has other tokens");
        }
      });
}

void World::Stall(const Action& action) {
  constexpr const char* kLoops[] = {"engine", "text-in", "text-out", "dispatch", "masks"};
  const int64_t until_us = time_.NowUs() + action.us;
  stalled_until_us_ = std::max(stalled_until_us_, until_us);
  executor_.Stall(kLoops[std::clamp<int64_t>(action.call, 1, 5) - 1], until_us);
}

bool World::AllWell() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->shards().AllWell(); });
}

bool World::GroupsIdle() const {
  // Groups' last news may be on their way.
  const Dispatcher* const dispatcher = serving_->GroupsForTest().DispatcherForTest();
  if (dispatcher != nullptr && dispatcher->QueueForTest().TenantsForTest() > 0) return false;
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    const Scheduler* const scheduler = SchedulerOf(group);
    if (!serving_->GroupsForTest().LoopForTest(group).serving()) continue;
    const SchedulerStats stats = scheduler->Stats();
    FakeEpoch* const epoch = groups_[group]->shards().epoch();
    if (stats.running + stats.waiting + stats.blocks_used > 0) return false;
    if (epoch != nullptr && epoch->held_slots() > 0) return false;
  }
  return true;
}

bool World::NotBackInTime() const {
  return std::any_of(groups_.begin(), groups_.end(), [this](const auto& group) {
    return time_.NowUs() + kNewsUs - group->shards().last_step_us() >=
           settings_.recovery_timeout_s * 1'000'000;
  });
}

bool World::NoneBackInTime() const {
  return std::all_of(groups_.begin(), groups_.end(), [this](const auto& group) {
    return time_.NowUs() + kNewsUs - group->shards().last_step_us() >=
           settings_.recovery_timeout_s * 1'000'000;
  });
}

bool World::AllEnded() const {
  if (tokenizing_ > 0) return false;
  return std::all_of(here_.begin(), here_.end(),
                     [](const Client* client) { return client->gone(); });
}

// The router serves still: one more request runs to its end.
void World::AskOnceMore() {
  const int64_t limit_us = time_.NowUs() + kPatienceUs;
  RunUntil([this] { return fatal_ || (Serving_() && AllWell()); }, limit_us,
           "the router serves again");
  if (fatal_) return;
  Action last;
  last.id = 1'000'000;
  last.prompt = 1;
  last.max_tokens = 1;
  last.seed = 1;
  // A pool of one block bears no more; an open fault may still end the epoch.
  for (int tries = 0; tries < 20; ++tries, ++last.id) {
    Ask(last);
    RunUntil([this] { return AllEnded(); }, limit_us, "the last request ends");
    if (Get(last.id).status().ok()) return;
    const int64_t again_us = time_.NowUs() + kAgainUs;
    RunUntil([&] { return time_.NowUs() >= again_us; }, limit_us, "time passes");
    RunUntil([this] { return fatal_ || (Serving_() && AllWell()); }, limit_us,
             "the router serves again");
    if (fatal_) return;
  }
  Violated("scope.one", absl::StrCat("a request of one token does not end well: ",
                                     Get(last.id - 1).status().message()));
}

void World::ShutDown() {
  shutting_down_ = true;
  now_ = "shutdown";
  serving_->Shutdown();
  if (serving_->AdmissionForTest().waiting() + serving_->AdmissionForTest().running() > 0) {
    Violated("end.once", "a request outlives the router");
  }
  for (const auto& group : groups_) {
    if (AllWell() && !fatal_ && group->shards().AnyJoined()) {
      Violated("wire.order", "a shard is still in the epoch of a router that has left");
    }
  }
  serving_.reset();
}

}  // namespace weft::router::sim
