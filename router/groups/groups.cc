#include "router/groups/groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/status.h"
#include "router/shards/agreement.h"

namespace weft::router {
namespace {

// What a server is whose groups are `a` and `b`.
ServerState Together(ServerState a, ServerState b) {
  for (const ServerState first :
       {ServerState::kDraining, ServerState::kReady, ServerState::kRecovering}) {
    if (a == first || b == first) return first;
  }
  return std::max(a, b);
}

}  // namespace

class Groups::Restarter : public ShardRestarter {
 public:
  Restarter(ShardRestarter* all, Rank first_rank) : all_(all), first_rank_(first_rank) {}
  void Restart(Rank rank, uint64_t pid, const std::string& reason) override {
    all_->Restart(first_rank_ + rank, pid, reason);
  }

 private:
  ShardRestarter* const all_;
  const Rank first_rank_;
};

Groups::Groups(const EngineLoopOptions& options, std::vector<uint32_t> worlds, Admission* admission,
               Probe* probe, const Runtime& runtime)
    : worlds_(std::move(worlds)),
      admission_(admission),
      probe_(probe),
      runtime_(runtime),
      gates_(worlds_.size()) {
  for (Gate& gate : gates_) gate.running_max = options.running_max;
  EngineLoopOptions own = options;
  own.groups = static_cast<uint32_t>(worlds_.size());
  for (const uint32_t world : worlds_) {
    loops_.push_back(
        std::make_unique<EngineLoop>(own, static_cast<GroupOwner*>(this), probe, runtime));
    ++own.group;
    own.first_rank += world;
  }
  probe_->SetGroups(count());
  if (count() == 1) return;
  DispatcherOptions dispatch;
  dispatch.prefix_cache = options.prefix_cache;
  dispatch.queue_timeout_us = options.queue_timeout_us;
  dispatch.recovery_timeout_us = options.recovery_timeout_us;
  std::vector<Inbox*> inboxes;
  for (const auto& loop : loops_) inboxes.push_back(loop.get());
  dispatcher_ = std::make_unique<Dispatcher>(dispatch, std::move(inboxes), probe, runtime);
}

Groups::~Groups() { Stop(); }

absl::Status Groups::Start(const ClientFactory& make_clients, StreamSink* text,
                           MaskMaker* mask_maker, ShardRestarter* restarter,
                           const std::vector<std::unique_ptr<Recorder>>& recorders) {
  Rank first_rank = 0;
  for (uint32_t group = 0; group < count(); ++group) {
    ShardRestarter* own = restarter;
    if (restarter != nullptr && first_rank > 0) {
      restarters_.push_back(std::make_unique<Restarter>(restarter, first_rank));
      own = restarters_.back().get();
    }
    WEFT_RETURN_IF_ERROR(loops_[group]->Start(
        [&](const ShardReplySink& sink, Poller* poller) {
          return make_clients(group, sink, poller);
        },
        text, mask_maker, own, recorders.empty() ? nullptr : recorders[group].get()));
    first_rank += worlds_[group];
  }
  if (dispatcher_ != nullptr) dispatcher_->Start();
  return absl::OkStatus();
}

void Groups::Stop() {
  if (dispatcher_ != nullptr) dispatcher_->Stop();
  for (const auto& loop : loops_) loop->BeginStop();
  for (const auto& loop : loops_) loop->Stop();
}

// -- From any thread -----------------------------------------------------------------------------

bool Groups::Arrive(std::unique_ptr<PreparedRequest>&& request) {
  if (dispatcher_ != nullptr) return dispatcher_->Arrive(std::move(request));
  return loops_[0]->Arrive(std::move(request));
}

void Groups::CancelSequence(SequenceId sequence) {
  // Whoever is about to hand it on, or has it under way, finds the cause in its answer.
  if (dispatcher_ != nullptr) dispatcher_->CancelSequence(sequence);
  for (const auto& loop : loops_) loop->CancelSequence(sequence);
}

bool Groups::FlushPrefixCache() {
  bool done = dispatcher_ == nullptr || dispatcher_->ForgetPrefixes();
  for (const auto& loop : loops_) done = loop->FlushPrefixCache() && done;
  return done;
}

void Groups::ShardDied(const ShardDeath& death) {
  ShardDeath own = death;
  for (uint32_t group = 0; group < count(); ++group) {
    if (own.rank < worlds_[group]) return loops_[group]->ShardDied(own);
    own.rank -= worlds_[group];
  }
}

void Groups::EndAllAt(int64_t deadline_us) {
  if (dispatcher_ != nullptr) dispatcher_->EndAllAt(deadline_us);
  for (const auto& loop : loops_) loop->EndAllAt(deadline_us);
}

ServerStatus Groups::Status() const {
  if (count() == 1) return loops_[0]->Status();
  ServerStatus all = loops_[0]->Status();
  std::string detail;
  int percent_sum = 0;
  uint32_t serving = 0;
  for (uint32_t group = 0; group < count(); ++group) {
    const ServerStatus status = loops_[group]->Status();
    all.state = Together(all.state, status.state);
    all.stalled_us = std::max(all.stalled_us, status.stalled_us);
    percent_sum += status.percent;
    if (loops_[group]->serving()) {
      ++serving;
    } else {
      absl::StrAppend(&detail, "; group ", group, ": ", status.detail);
    }
  }
  all.percent = percent_sum / static_cast<int>(count());
  all.detail = absl::StrCat(serving, " of ", count(), " groups serve", detail);
  return all;
}

const EngineLoop& Groups::Formed() const {
  for (const auto& loop : loops_) {
    if (loop->vocab_size() > 0) return *loop;
  }
  return *loops_[0];
}

ServedShape Groups::Shape() const {
  ServedShape shape = Formed().Shape();
  if (count() > 1 && shape.vocab_size > 0) {
    shape.request_tokens_max = admission_->request_tokens_max();
  }
  return shape;
}

std::optional<PrefixHasher> Groups::prefix_hasher() const { return Formed().prefix_hasher(); }
uint32_t Groups::vocab_size() const { return Formed().vocab_size(); }

// -- The gate ------------------------------------------------------------------------------------

void Groups::Open(uint32_t group) {
  absl::MutexLock lock(&mutex_);
  gates_[group].open = true;
  admission_->Open();
}

void Groups::Close(uint32_t group, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  gates_[group].open = false;
  if (std::none_of(gates_.begin(), gates_.end(), [](const Gate& gate) { return gate.open; })) {
    admission_->Close(why);
  }
}

void Groups::SetRunningMax(uint32_t group, uint32_t running_max) {
  absl::MutexLock lock(&mutex_);
  gates_[group].running_max = running_max;
  uint32_t sum = 0;
  for (const Gate& gate : gates_) sum += gate.running_max;
  admission_->SetRunningMax(sum);
}

void Groups::SetRequestTokensMax(uint32_t group, uint32_t request_tokens_max) {
  absl::MutexLock lock(&mutex_);
  gates_[group].request_tokens_max = request_tokens_max;
  // A request must fit whichever group it goes to.
  uint32_t least = request_tokens_max;
  for (const Gate& gate : gates_) {
    if (gate.request_tokens_max > 0) least = std::min(least, gate.request_tokens_max);
  }
  admission_->SetRequestTokensMax(least);
}

void Groups::SetState(uint32_t group, ServerState state) {
  absl::MutexLock lock(&mutex_);
  gates_[group].state = state;
  ServerState together = state;
  for (const Gate& gate : gates_) together = Together(together, gate.state);
  probe_->SetServerState(together);
}

// -- What groups have in common ------------------------------------------------------------------

std::array<uint64_t, 2> Groups::HashKey() {
  absl::MutexLock lock(&mutex_);
  if (!hash_key_.has_value()) {
    const uint64_t first = runtime_.random_id();
    hash_key_ = {first, runtime_.random_id()};
  }
  return *hash_key_;
}

absl::Status Groups::CheckModel(uint32_t group, const weft::shard::v1::InfoResponse& info) {
  if (count() == 1) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (!model_.has_value() || model_of_ == group) {
    model_ = info;
    model_of_ = group;
    return absl::OkStatus();
  }
  const std::string first = absl::StrCat("group ", model_of_);
  const std::string own = absl::StrCat("group ", group);
  WEFT_RETURN_IF_ERROR(SameModelInGroups(first, *model_, own, info));
  const std::string unequal = UnequalNumbers(*model_, info);
  if (!unequal.empty()) {
    WEFT_LOG_WARN("{} computes otherwise than {}: {}; the same seed may give other tokens", own,
                  first, unequal);
  }
  return absl::OkStatus();
}

void Groups::Report(uint32_t group, const GroupReport& report, absl::Span<const TenantNews> news) {
  dispatcher_->Report(group, report, news);
}

bool Groups::GiveBack(uint32_t group, std::unique_ptr<PreparedRequest>&& request) {
  return dispatcher_->GiveBack(group, std::move(request));
}

}  // namespace weft::router
