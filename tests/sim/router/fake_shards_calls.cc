// What the simulated shards answer: each call of shard.proto, and the faults of step answers.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/sim/router/fake_shards.h"
#include "tests/sim/router/fake_tokenizer.h"

namespace weft::router::sim {
namespace {

namespace wire = weft::shard::v1;

constexpr int64_t kInfoUs = 20;
constexpr int64_t kJoinUs = 2'000;
constexpr int64_t kWarmupUs = 3'000;

template <typename Message>
Message Parse(const SharedBytes& bytes, Watch* watch) {
  Message message;
  if (!message.ParseFromString(*bytes)) watch->Violated("wire.ids", "a call that does not parse");
  return message;
}

// FNV-1a, as shard.proto has it; not the router's own.
uint32_t HashOf(const google::protobuf::RepeatedField<uint32_t>& ids) {
  uint32_t hash = 2166136261u;
  for (const uint32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ ((id >> shift) & 0xFF)) * 16777619u;
  }
  return hash;
}

absl::Status Refused(absl::string_view what) { return absl::FailedPreconditionError(what); }

}  // namespace

void FakeShards::Info(CallId id, const Process& process, Rank rank) {
  const int64_t now_us = time_->NowUs();
  wire::InfoResponse info;
  info.set_protocol_version(kShardProtocolVersion);
  info.mutable_build()->set_version("simulated");
  info.set_spec_hash(process.other_model ? 2 : 1);
  info.set_rank(rank);
  info.set_world(static_cast<uint32_t>(settings_.world));
  info.set_device("cpu");
  info.set_isa("none");
  info.add_isa_supported("none");
  for (const int64_t window : {int64_t{0}, settings_.window}) {
    if (window == 0 && info.kv_groups_size() > 0) continue;
    wire::KvGroup* group = info.add_kv_groups();
    group->set_layers(1);
    group->set_window_tokens(static_cast<uint32_t>(window));
    group->set_block_tokens(static_cast<uint32_t>(settings_.block_tokens));
    group->set_block_bytes(64);
  }
  info.set_state(now_us < process.ready_us ? wire::SHARD_STATE_LOADING
                 : process.joined          ? wire::SHARD_STATE_JOINED
                                           : wire::SHARD_STATE_READY);
  info.set_epoch(std::max(process.epoch, process.fence));
  const bool stuck = now_us < process.stuck_until_us;
  info.set_heartbeat_age_us(stuck ? static_cast<uint64_t>(now_us - process.stuck_since_us) : 0);
  info.set_cpu_time_us(static_cast<uint64_t>(stuck ? process.stuck_since_us : now_us));
  info.set_vocab_size(kVocabulary);
  info.set_context_tokens(static_cast<uint32_t>(settings_.context_tokens));
  info.set_running_max(static_cast<uint32_t>(settings_.running_max));
  info.set_step_tokens_max(static_cast<uint32_t>(settings_.step_tokens_max));
  info.set_pid(process.pid);
  info.set_process_start_ticks(process.start_ticks);
  info.set_pid_namespace(1);
  info.set_family("simulated");
  info.add_eos_ids(kEndId);
  info.set_holder_router_id(process.holder_id);
  Wire::How how;
  how.late_us = kInfoUs;
  wire_.Reply(id, absl::OkStatus(), info.SerializeAsString(), how);
}

void FakeShards::Hold(CallId id, Process* process, const SharedBytes& request) {
  const auto hold = Parse<wire::HoldRequest>(request, watch_);
  if (hold.release()) {
    if (process->hold != 0) wire_.Reply(process->hold, absl::CancelledError("released"));
    process->hold = 0;
    process->holder_id = 0;
    return wire_.Reply(id, absl::OkStatus(), wire::HoldResponse().SerializeAsString());
  }
  process->holder_id = hold.router_id();
  process->hold = id;
}

void FakeShards::Rendezvous(CallId id, Process* process, Rank rank, const SharedBytes& request) {
  const auto rendezvous = Parse<wire::RendezvousRequest>(request, watch_);
  if (rank != 0 || rendezvous.world() != settings_.world) {
    watch_->Violated("wire.order", "a Rendezvous that does not fit its rank or world");
  }
  if (process->holder_id != rendezvous.router_id() || process->joined ||
      rendezvous.epoch() <= std::max(process->fence, process->epoch)) {
    return wire_.Reply(id, Refused("the Rendezvous does not fit"));
  }
  process->fence = rendezvous.epoch();
  wire::RendezvousResponse response;
  response.set_token(absl::StrCat("token ", rendezvous.epoch()));
  wire_.Reply(id, absl::OkStatus(), response.SerializeAsString());
}

void FakeShards::Join(CallId id, Process* process, Rank rank, const SharedBytes& request) {
  const auto join = Parse<wire::JoinGroupRequest>(request, watch_);
  if (join.rank() != rank || join.world() != settings_.world || join.isa() != "none" ||
      join.token() != absl::StrCat("token ", join.epoch())) {
    watch_->Violated("wire.order", absl::StrCat("rank ", rank, ": a JoinGroup that does not fit"));
  }
  if (process->holder_id != join.router_id() || process->joined || process->epoch != 0 ||
      join.epoch() < process->fence || time_->NowUs() < process->ready_us) {
    return wire_.Reply(id, Refused("the JoinGroup does not fit"));
  }
  process->epoch = process->fence = join.epoch();
  process->router_id = join.router_id();
  process->join = id;
  process->warm = false;
  if (epoch_ == nullptr || epoch_->epoch() < join.epoch()) {
    epoch_ = std::make_unique<FakeEpoch>(join.epoch(), settings_, watch_);
    delivered_ = 0;
    device_free_us_ = 0;
    if (masks_wait_us_ > 0) step_planned_ = false;
    masks_wait_us_ = 0;
    answer_lost_ = false;
  }
  epoch_->Join(rank, process->kv_blocks);
  if (!epoch_->Complete()) return;  // the ranks meet
  ++watch_->counts().epochs;
  watch_->OnPool(epoch_->kv_blocks());
  for (Process& member : processes_) {
    member.joined = true;
    Wire::How how;
    how.late_us = kJoinUs;
    wire_.Reply(member.join, absl::OkStatus(), wire::JoinGroupResponse().SerializeAsString(), how);
    member.join = 0;
  }
}

void FakeShards::Warmup(CallId id, Process* process, const SharedBytes& request) {
  const auto warmup = Parse<wire::WarmupRequest>(request, watch_);
  if (!process->joined || warmup.epoch() != process->epoch) {
    return wire_.Reply(id, Refused("not in this epoch"));
  }
  process->warm = true;
  wire::WarmupResponse response;
  for (int i = 0; i < (settings_.window > 0 ? 2 : 1); ++i) {
    response.add_kv_blocks(process->kv_blocks);
  }
  wire::StepCost* cost = response.add_costs();
  cost->set_rows(1);
  cost->set_context_tokens(16);
  cost->set_step_us(static_cast<uint32_t>(settings_.step_us));
  Wire::How how;
  how.late_us = kWarmupUs;
  wire_.Reply(id, absl::OkStatus(), response.SerializeAsString(), how);
}

void FakeShards::LeaveGroup(CallId id, Process* process, Rank rank, const SharedBytes& request) {
  const auto leave = Parse<wire::LeaveGroupRequest>(request, watch_);
  const int64_t now_us = time_->NowUs();
  if (process->holder_id != 0 && process->holder_id != leave.router_id()) {
    return wire_.Reply(id, absl::AlreadyExistsError("another router holds this shard"));
  }
  if (process->epoch != 0 && leave.epoch() < process->epoch) {
    return wire_.Reply(id, Refused("a higher epoch"));
  }
  process->fence = std::max<Epoch>(process->fence, leave.epoch());
  Leave(process, rank);
  // A device that does not become idle ends the process.
  if (process->stuck_until_us > now_us + kLeaveIdleUs) {
    return time_->At(now_us + kLeaveIdleUs, this, kReplace, process->pid << 8 | rank);
  }
  Wire::How how;
  how.late_us = std::max<int64_t>(process->stuck_until_us - now_us, 0);
  wire_.Reply(id, absl::OkStatus(), wire::LeaveGroupResponse().SerializeAsString(), how);
}

void FakeShards::Leave(Process* process, Rank rank) {
  if (process->epoch == 0) return;
  if (epoch_ != nullptr && epoch_->epoch() == process->epoch) {
    if (epoch_->Complete()) ++watch_->counts().groups_lost;
    epoch_->Leave(rank);
  }
  if (process->join != 0) wire_.Reply(process->join, absl::AbortedError("left"));
  for (const auto& [step, call] : process->owed) {
    Wire::How how;
    // An aborted step of a device that is at work takes its time, up to the next epoch and beyond.
    how.late_us = draws_.Chance(50) ? draws_.Below(60'000) : 0;
    wire_.Reply(call, absl::AbortedError("left the group"), "", how);
  }
  process->owed.clear();
  process->join = 0;
  process->epoch = 0;
  process->joined = process->warm = false;
}

// -- Steps ---------------------------------------------------------------------------------------

void FakeShards::Step(CallId id, Rank rank, ShardCall call, const ShardCallTag& tag,
                      const SharedBytes& request) {
  Process& process = processes_[rank];
  // The message itself is read when the step runs, and must say the same.
  if (!process.joined || !process.warm || tag.epoch != process.epoch) {
    return wire_.Reply(id, Refused(absl::StrCat("not in epoch ", tag.epoch)));
  }
  process.owed.emplace_back(tag.number, id);
  if (process.owed.size() > kStepsInFlightMax) {
    watch_->Violated("ahead.two", absl::StrCat("rank ", rank, " has ", process.owed.size(),
                                               " steps that it has not answered"));
  }
  epoch_->Arrived(rank, tag.number, call, request);
  PlanStep();
}

void FakeShards::MaskRows(CallId id, Rank rank, const ShardCallTag& tag,
                          const SharedBytes& request) {
  const Process& process = processes_[rank];
  if (!process.joined || !process.warm || tag.epoch != process.epoch ||
      tag.epoch != epoch_->epoch()) {
    return wire_.Reply(id, Refused(absl::StrCat("not in epoch ", tag.epoch)));
  }
  ++watch_->counts().masks;
  const bool next = epoch_->MasksArrived(rank, tag.number, request);
  wire_.Reply(id, absl::OkStatus(), wire::MaskRowsResponse().SerializeAsString());
  if (!next || masks_wait_us_ == 0 || !epoch_->NextReady() || !epoch_->MasksReady()) return;
  masks_wait_us_ = 0;
  time_->At(time_->NowUs(), this, kStepEnds);
}

void FakeShards::MasksLate(StepNumber step) {
  if (masks_wait_us_ == 0 || !epoch_->NextReady() || epoch_->next_step() != step) return;
  const int64_t now_us = time_->NowUs();
  // A part may wait for a process that does nothing, behind which others come too.
  int64_t since_us = masks_wait_us_;
  for (const Process& process : processes_) since_us = std::max(since_us, process.hung_until_us);
  if (now_us < since_us + kMaskWaitUsMax) {
    return time_->At(since_us + kMaskWaitUsMax, this, kMasksLate, step);
  }
  if (answer_lost_) {
    for (Process& process : processes_) {
      for (const auto& [number, call] : process.owed) {
        wire_.Reply(call, absl::DeadlineExceededError("masks of the step have not come"));
      }
      process.owed.clear();
    }
    return;
  }
  watch_->Violated("wire.order", absl::StrCat("the masks of step ", step, " of epoch ",
                                              epoch_->epoch(), " do not come"));
}

void FakeShards::PlanStep() {
  if (step_planned_ || epoch_ == nullptr || !epoch_->NextReady()) return;
  step_planned_ = true;
  int64_t begin_us = std::max(time_->NowUs(), device_free_us_);
  for (const Process& process : processes_) {
    begin_us = std::max({begin_us, process.hung_until_us, process.stuck_until_us});
  }
  time_->At(begin_us + epoch_->NextUs() + draws_.Below(settings_.step_us / 4), this, kStepEnds);
}

void FakeShards::EndStep() {
  if (!epoch_->NextReady()) return;  // its epoch is over
  const int64_t now_us = time_->NowUs();
  for (const Process& process : processes_) {
    if (now_us < std::max(process.hung_until_us, process.stuck_until_us)) return PlanStep();
  }
  const StepNumber step = epoch_->next_step();
  if (!epoch_->MasksReady()) {
    step_planned_ = true;
    ++watch_->counts().mask_waits;
    masks_wait_us_ = now_us;
    return time_->At(now_us + kMaskWaitUsMax, this, kMasksLate, step);
  }
  wire::StepResponse& response = epoch_->RunNext();
  ++watch_->counts().steps;
  watch_->OnEvent();
  device_free_us_ = last_step_us_ = now_us;
  response.set_ids_hash(HashOf(response.ids()));
  response.mutable_timings()->set_device_us(static_cast<uint32_t>(settings_.step_us));
  for (Rank rank = 0; rank < processes_.size(); ++rank) {
    std::vector<std::pair<StepNumber, CallId>>& owed = processes_[rank].owed;
    const auto found = std::find_if(owed.begin(), owed.end(),
                                    [step](const auto& entry) { return entry.first == step; });
    if (found == owed.end()) continue;
    const CallId id = found->second;
    owed.erase(found);
    Answer(rank, id, response);
  }
  PlanStep();
}

void FakeShards::Answer(Rank rank, CallId id, const wire::StepResponse& full) {
  Process& process = processes_[rank];
  wire::StepResponse other;
  const bool plain = process.pending.empty();
  if (rank != 0) {
    other.set_epoch(full.epoch());
    other.set_step(full.step());
    other.set_ids_hash(full.ids_hash());
  }
  if (plain) {
    const std::string body = (rank == 0 ? full : other).SerializeAsString();
    return wire_.Reply(id, absl::OkStatus(), body);
  }
  if (rank == 0) other = full;
  Action fault;
  if (TakeFault(&process, Kind::kError, &fault)) {
    return wire_.Reply(id, absl::InternalError("the step failed, as it was told"));
  }
  std::string body;
  if (TakeFault(&process, Kind::kLie, &fault)) {
    ++watch_->counts().lies;
    answer_lost_ = true;
    TellLie(fault, rank, &other, &body);
  }
  if (body.empty()) body = other.SerializeAsString();
  Wire::How how;
  if (TakeFault(&process, Kind::kSlow, &fault)) how.late_us = fault.us;
  // Behind the next one.
  if (TakeFault(&process, Kind::kReorder, &fault)) how.late_us += 3 * settings_.step_us;
  how.twice = TakeFault(&process, Kind::kRepeat, &fault);
  how.lost = TakeFault(&process, Kind::kLose, &fault);
  answer_lost_ = answer_lost_ || how.lost;
  watch_->counts().repeated_replies += how.twice ? 1 : 0;
  watch_->counts().lost_replies += how.lost ? 1 : 0;
  wire_.Reply(id, absl::OkStatus(), std::move(body), how);
}

void FakeShards::TellLie(const Action& fault, Rank rank, wire::StepResponse* response,
                         std::string* body) {
  switch (fault.lie) {
    case kLieHash:
      response->set_ids_hash(response->ids_hash() ^ 1);
      break;
    case kLieEpoch:
      response->set_epoch(response->epoch() - 1);
      break;
    case kLieStep:
      response->set_step(response->step() + 1);
      break;
    case kLieIds:
      // Another token with a hash that fits: only the other ranks' hashes tell.
      if (response->ids_size() > 0 && processes_.size() > 1) {
        response->set_ids(0, response->ids(0) ^ 1);
        watch_->OnFalseToken(epoch_->SequenceOf(response->slots(0)));
        response->set_ids_hash(HashOf(response->ids()));
      }
      break;
    case kLieRows:
      if (rank == 0) {
        response->add_slots(0);
        response->add_ids(kFirstSaid);
        response->set_ids_hash(HashOf(response->ids()));
      }
      break;
    case kLieMalformed:
      *body = "no message \xFF";
      break;
    case kLieInvalidRow:
      if (response->ids_size() > 0) {
        const auto row = static_cast<uint32_t>(draws_.Below(response->ids_size()));
        response->add_invalid_rows(row);
        watch_->OnInvalidRow(epoch_->SequenceOf(response->slots(static_cast<int>(row))));
      }
      break;
    default:
      break;
  }
}

}  // namespace weft::router::sim
