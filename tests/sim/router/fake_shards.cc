#include "tests/sim/router/fake_shards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/sim/router/fake_tokenizer.h"

namespace weft::router::sim {
namespace {

namespace wire = weft::shard::v1;

// A shard with another model is replaced by somebody who looks after it.
constexpr int64_t kOtherModelUs = 1'500'000;
// Beside its steps a shard is asked how it is some 50 times a second, when that is waited for.
constexpr uint32_t kCallsPerSecondMax = 400;
// The news of a death take a moment.
constexpr int64_t kTellUsMax = 30'000;
constexpr uint64_t kPidsOfGroup = 1'000'000;

Settings OfGroup(uint32_t group, Settings settings) {
  if (group > 0) settings.seed = static_cast<int64_t>(Mix(settings.seed + group) >> 16);
  return settings;
}

}  // namespace

class FakeShards::Restarter : public ShardRestarter {
 public:
  explicit Restarter(FakeShards* shards) : shards_(*shards) {}
  void Restart(Rank rank, uint64_t pid, const std::string&) override {
    shards_.OnRestartAsked(rank, pid);
  }

 private:
  FakeShards& shards_;
};

FakeShards::FakeShards(uint32_t group, const Settings& settings, VirtualTime* time, Watch* watch)
    : settings_(OfGroup(group, settings)),
      time_(time),
      watch_(watch),
      wire_(settings_, time, watch, this),
      draws_(static_cast<uint64_t>(settings_.seed), 1002),
      processes_(static_cast<size_t>(settings.world)),
      calls_(static_cast<size_t>(settings.world)),
      next_pid_(100 + uint64_t{group} * kPidsOfGroup) {
  for (Rank rank = 0; rank < processes_.size(); ++rank) Begin(rank);
}

// -- Processes -----------------------------------------------------------------------------------

void FakeShards::Begin(Rank rank) {
  Process fresh;
  Process& process = processes_[rank];
  fresh.pid = next_pid_++;
  fresh.start_ticks = fresh.pid * 10;
  fresh.ready_us = time_->NowUs() + draws_.Below(settings_.load_us);
  const int64_t usual = settings_.kv_blocks + (rank == 0 ? settings_.more_blocks : 0);
  fresh.kv_blocks = process.next_blocks > 0 ? process.next_blocks : static_cast<uint32_t>(usual);
  fresh.other_model = process.next_other_model;
  // Faults that wait for a call wait on.
  fresh.pending = std::move(process.pending);
  process = std::move(fresh);
  if (process.other_model) {
    time_->At(time_->NowUs() + kOtherModelUs, this, kReplace, process.pid << 8 | rank);
  }
}

void FakeShards::Die(Rank rank) {
  Process& process = processes_[rank];
  if (!process.alive) return;
  const int64_t now_us = time_->NowUs();
  ++watch_->counts().deaths;
  if (process.epoch != 0 && !process.warm) ++watch_->counts().deaths_in_joins;
  process.alive = false;
  Leave(&process, rank);
  wire_.Break(rank);
  const int64_t wait_us = process.restart_us >= 0 ? process.restart_us : settings_.restart_us;
  time_->At(now_us + wait_us, this, kRestart, rank);
  if (!process.untold) {
    time_->At(now_us + draws_.Below(kTellUsMax), this, kTell, process.pid << 8 | rank);
  }
}

void FakeShards::OnRestartAsked(Rank rank, uint64_t pid) {
  ++watch_->counts().restarts_asked;
  Process& process = processes_[rank];
  if (process.pid != pid || !process.alive) return;
  Die(rank);
}

void FakeShards::OnTime(uint32_t kind, uint64_t value) {
  const auto rank = static_cast<Rank>(value & 0xFF);
  switch (kind) {
    case kRestart:
      return Begin(rank);
    case kStepEnds:
      step_planned_ = false;
      return EndStep();
    case kMasksLate:
      return MasksLate(value);
    case kTell:
      if (on_death_) on_death_({rank, value >> 8});
      return;
    case kReplace:
      if (processes_[rank].pid == value >> 8) Die(rank);
      return;
  }
}

std::unique_ptr<ShardRestarter> FakeShards::MakeRestarter(
    std::function<void(ShardDeath)> on_death) {
  if (settings_.supervisor == 0) return nullptr;
  on_death_ = std::move(on_death);
  return std::make_unique<Restarter>(this);
}

std::optional<int64_t> FakeShards::ReadCpuUs(const ShardProcess& asked) {
  for (const Process& process : processes_) {
    if (process.pid != asked.pid || !process.alive) continue;
    const int64_t now_us = time_->NowUs();
    return now_us < process.hung_until_us ? process.hung_since_us : now_us;
  }
  return std::nullopt;
}

bool FakeShards::AllWell() const {
  const int64_t now_us = time_->NowUs();
  return std::all_of(processes_.begin(), processes_.end(), [now_us](const Process& process) {
    return process.alive && !process.other_model && now_us >= process.ready_us &&
           now_us >= process.hung_until_us && now_us >= process.stuck_until_us;
  });
}

bool FakeShards::AnyJoined() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.alive && process.joined; });
}

// -- Faults --------------------------------------------------------------------------------------

void FakeShards::Do(const Action& fault) {
  if (fault.rank >= settings_.world) return;
  const auto rank = static_cast<Rank>(fault.rank);
  Process& process = processes_[rank];
  const int64_t now_us = time_->NowUs();
  switch (fault.kind) {
    case Kind::kKill:
      if (fault.call > 0) break;
      if (!process.alive) return;
      process.next_blocks = static_cast<uint32_t>(fault.blocks);
      // Whatever comes first is the model that is served.
      process.next_other_model = fault.other_model != 0 && last_step_us_ > 0;
      if (fault.us > 0) process.restart_us = fault.us;
      process.untold = fault.untold != 0;
      return Die(rank);
    case Kind::kBreak:
      return wire_.Break(rank);
    case Kind::kHang:
      if (!process.alive) return;
      if (now_us >= process.hung_until_us) process.hung_since_us = now_us;
      process.hung_until_us = std::max(process.hung_until_us, now_us + fault.us);
      return;
    case Kind::kStick:
      if (!process.alive) return;
      if (now_us >= process.stuck_until_us) process.stuck_since_us = now_us;
      process.stuck_until_us = std::max(process.stuck_until_us, now_us + fault.us);
      return;
    default:
      break;
  }
  process.pending.push_back(fault);
}

bool FakeShards::TakeFault(Process* process, Kind kind, Action* fault) {
  for (size_t i = 0; i < process->pending.size(); ++i) {
    Action& pending = process->pending[i];
    if (pending.kind != kind) continue;
    if (pending.skip-- > 0) return false;
    *fault = pending;
    if (--pending.count <= 0) {
      process->pending.erase(process->pending.begin() + static_cast<ptrdiff_t>(i));
    }
    return true;
  }
  return false;
}

// -- Wire ----------------------------------------------------------------------------------------

bool FakeShards::Listens(Rank rank) { return processes_[rank].alive; }

void FakeShards::OnDisconnected(Rank rank) {
  Process& process = processes_[rank];
  process.holder_id = 0;
  process.hold = 0;
}

void FakeShards::OnSent(Rank rank, ShardCall call, const ShardCallTag& tag) {
  const int64_t second = time_->NowUs() / 1'000'000;
  if (second != second_) calls_.assign(processes_.size(), 0);
  second_ = second;
  const bool follows_step = IsStep(call) || call == ShardCall::kMaskRows;
  if (!follows_step && ++calls_[rank] > kCallsPerSecondMax) {
    watch_->Violated("bound.all", absl::StrCat("rank ", rank, " is asked ", calls_[rank],
                                               " times in a second, at last by ", CallName(call)));
  }
  if (!IsStep(call)) return;
  if (epoch_ == nullptr || tag.epoch != epoch_->epoch()) {
    watch_->Violated("wire.order", absl::StrCat("a step of epoch ", tag.epoch, ", which is not"));
  }
  epoch_->Sent(tag.number, delivered_);
}

void FakeShards::OnDelivered(Rank rank, ShardCall call, const ShardCallTag& tag, bool ok) {
  if (!ok || rank != 0 || !IsStep(call)) return;
  if (epoch_ != nullptr && tag.epoch == epoch_->epoch()) {
    // Answers may overtake each other, and be repeated.
    delivered_ = std::max<StepNumber>(delivered_, tag.number);
  }
}

void FakeShards::OnCall(CallId id, Rank rank, ShardCall call, const ShardCallTag& tag,
                        const SharedBytes& request) {
  Process& process = processes_[rank];
  if (!process.alive) return;
  const int64_t now_us = time_->NowUs();
  for (size_t i = 0; i < process.pending.size(); ++i) {
    const Action fault = process.pending[i];
    if (fault.kind != Kind::kKill || fault.call != static_cast<int64_t>(call) + 1) continue;
    process.pending.erase(process.pending.begin() + static_cast<ptrdiff_t>(i));
    Action now = fault;
    now.call = 0;
    return Do(now);
  }
  if (now_us < process.hung_until_us) {
    // It comes again, as it were, once the process goes on.
    return wire_.Later(id, process.hung_until_us);
  }
  switch (call) {
    case ShardCall::kInfo:
      return Info(id, process, rank);
    case ShardCall::kHold:
      return Hold(id, &process, request);
    case ShardCall::kRendezvous:
      return Rendezvous(id, &process, rank, request);
    case ShardCall::kJoinGroup:
      return Join(id, &process, rank, request);
    case ShardCall::kLeaveGroup:
      return LeaveGroup(id, &process, rank, request);
    case ShardCall::kWarmup:
      return Warmup(id, &process, request);
    case ShardCall::kPrefill:
    case ShardCall::kDecode:
    case ShardCall::kFilterBatch:
      return Step(id, rank, call, tag, request);
    case ShardCall::kMaskRows:
      return MaskRows(id, rank, tag, request);
  }
}

}  // namespace weft::router::sim
