#include "router/shards/group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"

namespace weft::router {
namespace {

using weft::shard::v1::InfoResponse;
using weft::shard::v1::ShardState;

constexpr int64_t kInfoTimeoutUs = 1'000'000;
// While loading the bytes read are shown to people; while recovering every poll is waited for.
constexpr int64_t kLoadingPollUs = 100'000;
constexpr int64_t kRecoveringPollUs = 20'000;
// Heartbeats in a hang time-out.
constexpr int64_t kHeartbeatsPerTimeout = 10;
// A broken channel must be seen in less than 100 ms when nothing is in flight.
constexpr int64_t kWatchUs = 50'000;
constexpr int64_t kRendezvousTimeoutUs = 5'000'000;
// Taking the KV pool and timing small shapes; on an accelerator also the worst step.
constexpr int64_t kWarmupTimeoutUs = 120'000'000;
// A shard that cannot leave exits by itself; one whose process hangs is found by its silence.
constexpr int64_t kLeaveTimeoutUs = kLeaveUsMax + 1'000'000;
// A step may be late for as long as its rank shows life: the hang time-out finds one that does not.
// This is for what neither sees.
constexpr int64_t kStepTimeoutsPerHang = 4;
constexpr int64_t kStepTimeoutMinUs = 600'000'000;
constexpr int64_t kHangTimeoutCpuMs = 5'000;
constexpr int64_t kHangTimeoutDeviceMs = 2'000;
constexpr int64_t kRetryFirstUs = 50'000;
constexpr int64_t kRetryMaxUs = 2'000'000;

SharedBytes Serialise(const google::protobuf::Message& message) {
  return std::make_shared<const std::string>(message.SerializeAsString());
}

absl::Status OfRank(Rank rank, ShardCall call, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("rank ", rank, ", ", CallName(call), ": ", status.message()));
}

}  // namespace

ShardGroup::ShardGroup(ShardGroupOptions options, std::vector<std::unique_ptr<ShardClient>> clients,
                       ShardRestarter* restarter, Probe* probe, ShardGroupListener* listener)
    : options_(std::move(options)), restarter_(restarter), probe_(probe), listener_(listener) {
  WEFT_CHECK(options_.router_id != 0 && !clients.empty() && clients.size() <= kWorldMax);
  ranks_.resize(clients.size());
  for (size_t rank = 0; rank < clients.size(); ++rank) {
    ranks_[rank].client = std::move(clients[rank]);
  }
  detail_ = absl::StrCat("connecting to ", world(), " shards");
  probe_->SetWorld(world());
  probe_->SetGroupState(state_, epoch_);
}

// -- Events --------------------------------------------------------------------------------------

void ShardGroup::OnReply(ShardReply reply, int64_t now_us) {
  const Rank rank = reply.rank;
  WEFT_CHECK_LT(rank, world());
  probe_->ShardRpc(reply.call, reply.call_us);
  if (reply.call == ShardCall::kInfo) return OnInfo(rank, reply, now_us);
  if (reply.call == ShardCall::kLeaveGroup) return OnLeave(rank, reply);
  if (reply.tag.epoch != epoch_ || !InEpoch()) return;  // of an old epoch: dropped unread
  if (IsStep(reply.call)) {
    if (state_ == GroupState::kServing) OnStep(rank, reply, now_us);
    return;
  }
  if (!reply.status.ok()) {
    const bool dead = reply.status.code() == absl::StatusCode::kUnavailable;
    return Lose(OfRank(rank, reply.call, reply.status), dead ? std::optional(rank) : std::nullopt,
                dead ? RestartReason::kExit : RestartReason::kComm, now_us);
  }
  if (reply.call == ShardCall::kRendezvous) return OnRendezvous(reply, now_us);
  if (reply.call == ShardCall::kJoinGroup) return OnJoin(rank, now_us);
  if (reply.call == ShardCall::kWarmup) return OnWarmup(rank, reply, now_us);
}

void ShardGroup::OnShardDied(const ShardDeath& death, int64_t now_us) {
  if (death.rank >= world() || !InEpoch()) return;
  RankState& rank = ranks_[death.rank];
  if (rank.pid != death.pid) return;
  // The supervisor starts it again unasked.
  rank.restart_pid = death.pid;
  Lose(absl::UnavailableError(absl::StrCat("rank ", death.rank, ": process ", death.pid, " died")),
       death.rank, RestartReason::kExit, now_us);
}

int64_t ShardGroup::OnTimer(int64_t now_us) {
  if (closed_) return now_us + kWatchUs;
  int64_t next_us = now_us + kWatchUs;
  for (Rank rank = 0; rank < world(); ++rank) {
    RankState& state = ranks_[rank];
    if (!state.info_in_flight && now_us >= state.info_due_us) SendInfo(rank, now_us);
    if (!state.info_in_flight) next_us = std::min(next_us, state.info_due_us);
  }
  Watch(now_us);
  MaybeForm(now_us);
  return next_us;
}

// -- Info and watching ---------------------------------------------------------------------------

void ShardGroup::SendInfo(Rank rank, int64_t now_us) {
  weft::shard::v1::InfoRequest request;
  request.set_protocol_version(kShardProtocolVersion);
  ranks_[rank].info_in_flight = true;
  ranks_[rank].info_due_us = now_us + InfoIntervalUs();
  // Outside an epoch the call waits for the shard to come up, so that it is seen at once.
  ranks_[rank].client->Call(ShardCall::kInfo, Serialise(request), {epoch_, generation_},
                            kInfoTimeoutUs, /*wait_for_ready=*/!InEpoch());
}

void ShardGroup::OnInfo(Rank rank, const ShardReply& reply, int64_t now_us) {
  RankState& state = ranks_[rank];
  InfoResponse info;
  const bool answered = reply.status.ok() && info.ParseFromString(reply.body);
  // Any answer is a sign of life, also one to a question of an earlier state.
  if (answered && info.pid() == state.pid) state.vitals.OnInfo(info, now_us);
  if (reply.tag.number != generation_ || closed_) return;
  state.info_in_flight = false;
  state.info_due_us = std::max(state.info_due_us, now_us);
  if (!answered) {
    state.info.reset();
    if (!InEpoch()) {
      probe_->ShardUp(rank, false);
      if (!reply.status.ok()) SayUnreachable(rank, reply.status);
    }
    return;  // a broken channel and a hung process are found by Watch
  }
  if (InEpoch()) return CheckMember(rank, info, now_us);
  if (info.pid() != state.pid) {
    state.pid = info.pid();
    state.vitals.Restart(now_us);
  }
  if (epoch_ > 0 && info.epoch() > epoch_) {
    // Only routers raise epochs, and it was not this one.
    return Fatal(absl::FailedPreconditionError(absl::StrCat("another router has taken over: rank ",
                                                            rank, " has seen epoch ", info.epoch(),
                                                            ", this router's last is ", epoch_)));
  }
  probe_->ShardUp(rank, true);
  probe_->ShardLoad(rank, info.load().bytes_done(), info.load().bytes_total(),
                    static_cast<double>(info.load().elapsed_us()) / 1e6);
  state.info = std::move(info);
  state.unreachable.clear();
  MaybeForm(now_us);
}

void ShardGroup::SayUnreachable(Rank rank, const absl::Status& why) {
  detail_ = absl::StrCat("rank ", rank, ": ", why.message());
  if (ranks_[rank].unreachable == why.message()) return;
  ranks_[rank].unreachable = std::string(why.message());
  WEFT_LOG_WARN("waiting for a shard rank={} reason=\"{}\"", rank, ranks_[rank].unreachable);
}

void ShardGroup::CheckMember(Rank rank, const InfoResponse& info, int64_t now_us) {
  const RankState& state = ranks_[rank];
  if (info.pid() != state.pid) {
    ranks_[rank].restart_pid = state.pid;  // it has been restarted already
    return Lose(absl::UnavailableError(absl::StrCat("rank ", rank, ": process ", state.pid,
                                                    " was replaced by ", info.pid())),
                rank, RestartReason::kExit, now_us);
  }
  if (state_ != GroupState::kServing) return;
  if (info.state() != ShardState::SHARD_STATE_JOINED || info.epoch() != epoch_) {
    Lose(absl::AbortedError(absl::StrCat("rank ", rank, " left epoch ", epoch_, " ", info.error())),
         std::nullopt, RestartReason::kComm, now_us);
  }
}

void ShardGroup::Watch(int64_t now_us) {
  for (Rank rank = 0; rank < world(); ++rank) {
    RankState& state = ranks_[rank];
    if (InEpoch() && !state.client->Connected()) {
      return Lose(absl::UnavailableError(absl::StrCat("rank ", rank, ": connection lost")), rank,
                  RestartReason::kExit, now_us);
    }
    if (state.pid == 0 || state.restart_pid == state.pid) continue;
    const int64_t timeout_us = HangTimeoutUs();
    const ProcessCpuReader* read_cpu = state.client->is_local() ? &options_.read_cpu : nullptr;
    if (state.vitals.ProcessHung(now_us, timeout_us, state.pid, read_cpu)) {
      const absl::Status why = absl::DeadlineExceededError(absl::StrCat(
          "rank ", rank, ": no sign of life and no CPU time for ", timeout_us / 1000, " ms"));
      if (InEpoch()) return Lose(why, rank, RestartReason::kTimeout, now_us);
      AskRestart(rank, RestartReason::kTimeout, why);
    } else if (state_ == GroupState::kServing &&
               state.vitals.DeviceHung(now_us, timeout_us, ledger_.OwesSinceUs(rank), OnCpu())) {
      // Ranks that wait for a hung one look the same: all are asked to leave, and who cannot is
      // restarted.
      return Lose(
          absl::DeadlineExceededError(absl::StrCat(
              "rank ", rank, ": device thread shows no life for ", timeout_us / 1000, " ms")),
          std::nullopt, RestartReason::kTimeout, now_us);
    }
  }
}

int64_t ShardGroup::InfoIntervalUs() const {
  if (InEpoch()) return std::max(HangTimeoutUs() / kHeartbeatsPerTimeout, kRecoveringPollUs);
  return state_ == GroupState::kRecovering ? kRecoveringPollUs : kLoadingPollUs;
}

int64_t ShardGroup::HangTimeoutUs() const {
  if (options_.hang_timeout_ms > 0) return options_.hang_timeout_ms * 1000;
  return (OnCpu() ? kHangTimeoutCpuMs : kHangTimeoutDeviceMs) * 1000;
}

// -- Forming an epoch ----------------------------------------------------------------------------

void ShardGroup::MaybeForm(int64_t now_us) {
  if (closed_ || InEpoch() || now_us < next_attempt_us_ || !AllReady(now_us)) return;
  std::vector<InfoResponse> infos;
  for (const RankState& state : ranks_) infos.push_back(*state.info);
  absl::StatusOr<GroupAgreement> agreement = Agree(infos);
  absl::Status fits = agreement.status();
  for (const InfoResponse& info : infos) {
    if (fits.ok() && first_info_.has_value()) fits = SameModel(*first_info_, info);
  }
  if (!fits.ok()) {
    // At start-up somebody must act; later a shard may yet be restarted with the right flags.
    if (!first_info_.has_value()) return Fatal(fits);
    if (detail_ != fits.message()) WEFT_LOG_ERROR("no group: {}", std::string(fits.message()));
    detail_ = std::string(fits.message());
    return;
  }
  agreement_ = *std::move(agreement);
  Epoch highest = epoch_;
  for (const InfoResponse& info : infos) highest = std::max<Epoch>(highest, info.epoch());
  epoch_ = highest + 1;
  EnterState(GroupState::kJoining, absl::StrCat("joining epoch ", epoch_), now_us);
  weft::shard::v1::RendezvousRequest request;
  request.set_epoch(epoch_);
  request.set_router_id(options_.router_id);
  request.set_world(world());
  Send(0, ShardCall::kRendezvous, request, kRendezvousTimeoutUs);
}

bool ShardGroup::AllReady(int64_t now_us) {
  uint32_t known = 0;
  uint32_t ready = 0;
  for (Rank rank = 0; rank < world(); ++rank) {
    RankState& state = ranks_[rank];
    if (!state.info.has_value()) continue;
    ++known;
    if (state.leave_in_flight) continue;
    if (state.info->state() == ShardState::SHARD_STATE_READY) {
      ++ready;
    } else if (state.info->state() == ShardState::SHARD_STATE_JOINED) {
      // An epoch of a router that is gone (a higher number fences it), or one of ours whose end it
      // missed.
      const Epoch theirs = state.info->epoch();
      SendLeave(rank, theirs == epoch_ ? epoch_ : std::max<Epoch>(theirs + 1, epoch_));
      state.info.reset();
    } else if (state.info->state() == ShardState::SHARD_STATE_FAILED) {
      detail_ = absl::StrCat("rank ", rank, " failed: ", state.info->error());
    }
  }
  if (known == world() && state_ == GroupState::kConnecting) {
    EnterState(GroupState::kLoading, absl::StrCat(world(), " shards load"), now_us);
    return false;  // every rank is asked again in the new state
  }
  return ready == world();
}

void ShardGroup::OnRendezvous(const ShardReply& reply, int64_t now_us) {
  weft::shard::v1::RendezvousResponse response;
  if (!response.ParseFromString(reply.body)) {
    return Lose(absl::InternalError("rank 0: malformed Rendezvous answer"), std::nullopt,
                RestartReason::kComm, now_us);
  }
  weft::shard::v1::JoinGroupRequest request;
  request.set_epoch(epoch_);
  request.set_router_id(options_.router_id);
  request.set_world(world());
  request.set_token(response.token());
  request.set_isa(agreement_.isa);
  for (Rank rank = 0; rank < world(); ++rank) {
    ranks_[rank].done = false;
    request.set_rank(rank);
    Send(rank, ShardCall::kJoinGroup, request, kJoinUsMax);
  }
}

void ShardGroup::OnJoin(Rank rank, int64_t now_us) {
  if (state_ != GroupState::kJoining || !AllDone(rank)) return;
  EnterState(GroupState::kWarming, absl::StrCat("warming up epoch ", epoch_), now_us);
  warmups_.assign(world(), {});
  weft::shard::v1::WarmupRequest request;
  request.set_epoch(epoch_);
  request.set_router_id(options_.router_id);
  for (Rank r = 0; r < world(); ++r) {
    ranks_[r].done = false;
    Send(r, ShardCall::kWarmup, request, kWarmupTimeoutUs);
  }
}

void ShardGroup::OnWarmup(Rank rank, const ShardReply& reply, int64_t now_us) {
  weft::shard::v1::WarmupResponse& response = warmups_[rank];
  if (state_ != GroupState::kWarming) return;
  if (!response.ParseFromString(reply.body) || response.kv_blocks_size() != 1 ||
      response.kv_blocks(0) == 0) {
    return Lose(absl::InternalError(absl::StrCat("rank ", rank, ": malformed Warmup answer")),
                std::nullopt, RestartReason::kComm, now_us);
  }
  if (AllDone(rank)) Formed(now_us);
}

bool ShardGroup::AllDone(Rank rank) {
  ranks_[rank].done = true;
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& s) { return s.done; });
}

void ShardGroup::Formed(int64_t now_us) {
  FormedGroup group;
  group.epoch = epoch_;
  group.agreement = agreement_;
  group.info = *ranks_[0].info;
  group.kv_blocks = warmups_[0].kv_blocks(0);
  for (const auto& warmup : warmups_) {
    group.kv_blocks = std::min(group.kv_blocks, warmup.kv_blocks(0));
  }
  for (const auto& cost : warmups_[0].costs()) {
    group.costs.push_back(
        {cost.rows(), cost.prompt_tokens(), cost.context_tokens(), cost.step_us()});
  }
  if (!first_info_.has_value()) first_info_ = group.info;
  failed_attempts_ = 0;
  if (lost_us_ > 0) probe_->Recovered(now_us - lost_us_);
  lost_us_ = 0;
  ledger_.Reset(epoch_, world());
  for (RankState& state : ranks_) {
    state.restart_pid = 0;
    state.vitals.Restart(now_us);
  }
  EnterState(GroupState::kServing, "", now_us);
  WEFT_LOG_INFO("group formed epoch={} shards={} kv_blocks={} isa={}", epoch_, world(),
                group.kv_blocks, agreement_.isa);
  listener_->OnGroupFormed(group, now_us);
}

// -- Steps ---------------------------------------------------------------------------------------

void ShardGroup::SendStep(ShardCall call, StepNumber step, const SharedBytes& request,
                          int64_t now_us) {
  WEFT_CHECK(state_ == GroupState::kServing && IsStep(call));
  ledger_.Sent(step, now_us);
  const int64_t timeout_us = std::max(kStepTimeoutsPerHang * HangTimeoutUs(), kStepTimeoutMinUs);
  for (RankState& state : ranks_) {
    state.client->Call(call, request, {epoch_, step}, timeout_us, /*wait_for_ready=*/false);
  }
}

void ShardGroup::OnStep(Rank rank, const ShardReply& reply, int64_t now_us) {
  if (!reply.status.ok()) {
    const bool dead = reply.status.code() == absl::StatusCode::kUnavailable;
    const absl::Status why =
        OfRank(rank, reply.call,
               absl::Status(reply.status.code(),
                            absl::StrCat("step ", reply.tag.number, ": ", reply.status.message())));
    return Lose(why, dead ? std::optional(rank) : std::nullopt,
                dead ? RestartReason::kExit : RestartReason::kComm, now_us);
  }
  StepAnswer answer;
  answer.call_us = reply.call_us;
  if (!answer.response.ParseFromString(reply.body)) {
    return FailEpoch(absl::InternalError(absl::StrCat("rank ", rank, ": malformed step answer")),
                     now_us);
  }
  ranks_[rank].vitals.OnStep(now_us);
  probe_->ShardStep(rank, answer.response.timings().device_us());
  if (absl::Status status = ledger_.Answered(rank, std::move(answer)); !status.ok()) {
    return FailEpoch(status, now_us);
  }
  while (state_ == GroupState::kServing) {
    std::optional<StepAnswer> next = ledger_.TakeNext();
    if (!next.has_value()) return;
    listener_->OnStepAnswer(*next, now_us);
  }
}

void ShardGroup::FailEpoch(const absl::Status& why, int64_t now_us) {
  Lose(why, std::nullopt, RestartReason::kComm, now_us);
}

// -- Losing one ----------------------------------------------------------------------------------

void ShardGroup::Lose(const absl::Status& why, std::optional<Rank> dead, RestartReason reason,
                      int64_t now_us) {
  WEFT_CHECK(InEpoch());
  const bool served = state_ == GroupState::kServing;
  probe_->GroupLost(state_);
  WEFT_LOG_WARN("group lost epoch={} state={} reason=\"{}\"", epoch_, GroupStateName(state_),
                std::string(why.message()));
  if (served) {
    lost_us_ = now_us;
  } else {
    // The attempt did not hold: the next one waits a little longer each time.
    const int64_t wait_us = kRetryFirstUs << std::min<uint32_t>(failed_attempts_++, 10);
    next_attempt_us_ = now_us + std::min(wait_us, kRetryMaxUs);
  }
  const GroupState next =
      first_info_.has_value() ? GroupState::kRecovering : GroupState::kConnecting;
  EnterState(next, std::string(why.message()), now_us);
  for (Rank rank = 0; rank < world(); ++rank) {
    if (dead == rank || !ranks_[rank].client->Connected()) {
      AskRestart(rank, dead == rank ? reason : RestartReason::kExit, why);
      probe_->ShardUp(rank, false);
    } else {
      SendLeave(rank, epoch_);
    }
  }
  if (served) listener_->OnGroupLost(why, now_us);
}

void ShardGroup::SendLeave(Rank rank, Epoch epoch) {
  weft::shard::v1::LeaveGroupRequest request;
  request.set_epoch(epoch);
  request.set_router_id(options_.router_id);
  ranks_[rank].leave_in_flight = true;
  Send(rank, ShardCall::kLeaveGroup, request, kLeaveTimeoutUs);
}

void ShardGroup::OnLeave(Rank rank, const ShardReply& reply) {
  RankState& state = ranks_[rank];
  state.leave_in_flight = false;
  state.info.reset();  // what it said before is out of date
  state.info_due_us = 0;
  if (reply.status.ok() || closed_) return;
  if (reply.status.code() == absl::StatusCode::kFailedPrecondition) {
    return Fatal(absl::FailedPreconditionError(
        absl::StrCat("another router has taken over: rank ", rank, ": ", reply.status.message())));
  }
  // A shard that cannot become idle exits by itself; one that cannot even do that is killed.
  AskRestart(rank, RestartReason::kTimeout, OfRank(rank, reply.call, reply.status));
}

void ShardGroup::AskRestart(Rank rank, RestartReason reason, const absl::Status& why) {
  RankState& state = ranks_[rank];
  if (state.pid == 0) return;
  probe_->ShardRestarted(reason);
  if (state.restart_pid == state.pid) return;  // asked already, or known to be under way
  state.restart_pid = state.pid;
  if (restarter_ == nullptr) return;
  WEFT_LOG_WARN("asking for a restart rank={} pid={}", rank, state.pid);
  restarter_->Restart(rank, state.pid, std::string(why.message()));
}

void ShardGroup::Fatal(const absl::Status& why) {
  closed_ = true;
  detail_ = std::string(why.message());
  WEFT_LOG_ERROR("cannot serve: {}", detail_);
  listener_->OnGroupFatal(why);
}

void ShardGroup::Leave(int64_t now_us) {
  closed_ = true;
  if (!InEpoch()) return;
  EnterState(GroupState::kConnecting, "leaving", now_us);
  for (Rank rank = 0; rank < world(); ++rank) SendLeave(rank, epoch_);
}

bool ShardGroup::leaving() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankState& state) { return state.leave_in_flight; });
}

int ShardGroup::percent() const {
  uint64_t done = 0;
  uint64_t total = 0;
  for (const RankState& state : ranks_) {
    if (!state.info.has_value()) continue;
    done += state.info->load().bytes_done();
    total += state.info->load().bytes_total();
  }
  if (state_ == GroupState::kServing) return 100;
  return total == 0 ? 0 : static_cast<int>(100 * std::min(done, total) / total);
}

void ShardGroup::EnterState(GroupState state, std::string detail, int64_t now_us) {
  state_ = state;
  detail_ = std::move(detail);
  ++generation_;
  probe_->SetGroupState(state, epoch_);
  for (RankState& rank : ranks_) {
    rank.info_in_flight = false;
    // Outside an epoch all must say anew how they are; inside, this is the heartbeat.
    rank.info_due_us = InEpoch() ? now_us + InfoIntervalUs() : now_us;
    if (!InEpoch()) rank.info.reset();
  }
}

void ShardGroup::Send(Rank rank, ShardCall call, const google::protobuf::Message& request,
                      int64_t timeout_us) {
  ranks_[rank].client->Call(call, Serialise(request), {epoch_, 0}, timeout_us,
                            /*wait_for_ready=*/false);
}

}  // namespace weft::router
