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

// A broken channel must be seen in less than 100 ms when nothing is in flight.
constexpr int64_t kWatchUs = 50'000;
// A shard that cannot leave exits by itself; one whose process hangs is found by its silence.
constexpr int64_t kLeaveTimeoutUs = kLeaveUsMax + 1'000'000;
// A step may be late for as long as its rank shows life: the hang time-out finds one that does not.
// This is for what neither sees.
constexpr int64_t kStepTimeoutsPerHang = 4;
constexpr int64_t kStepTimeoutMinUs = 600'000'000;

absl::Status TakenOver(absl::string_view how) {
  return absl::FailedPreconditionError(absl::StrCat("another router has taken over: ", how));
}

}  // namespace

ShardGroup::ShardGroup(const ShardGroupOptions& options,
                       std::vector<std::unique_ptr<ShardClient>> clients, ShardRestarter* restarter,
                       Probe* probe, ShardGroupListener* listener)
    : group_(options.group),
      tag_(options.name.empty() ? "" : absl::StrCat(" group=", options.name)),
      first_rank_(options.health.first_rank),
      router_id_(options.router_id),
      probe_(probe),
      listener_(listener),
      supervised_(restarter != nullptr),
      shards_(std::move(clients)),
      health_(options.health, &shards_, probe),
      claims_(options.router_id, options.launcher, &shards_),
      forming_(options.router_id, options.model, &shards_, options.check_model),
      failures_(shards_.world(), first_rank_, restarter, probe),
      leave_in_flight_(shards_.world(), false),
      last_words_(shards_.world()) {
  WEFT_CHECK(router_id_ != 0);
  detail_ = absl::StrCat("connecting to ", world(), " shards");
  probe_->SetWorld(first_rank_ + world());
  probe_->SetGroupState(state_, epoch_, group_);
}

// -- Events --------------------------------------------------------------------------------------

void ShardGroup::OnReply(ShardReply reply, int64_t now_us) {
  WEFT_CHECK_LT(reply.rank, world());
  if (reply.call == ShardCall::kHold) return OnHold(reply, now_us);
  probe_->ShardRpc(reply.call, reply.call_us);
  if (reply.call == ShardCall::kInfo) return OnInfo(reply, now_us);
  if (reply.call == ShardCall::kLeaveGroup) return OnLeave(reply);
  if (reply.tag.epoch != epoch_ || !InEpoch()) return;  // of an old epoch: dropped unread
  if (reply.call == ShardCall::kMaskRows) {
    // What it means comes with the step's own answer.
    if (reply.status.ok() || state_ != GroupState::kServing) return;
    return LoseAfterCall(reply.rank,
                         absl::Status(reply.status.code(),
                                      absl::StrCat("rank ", reply.rank, ", MaskRows: step ",
                                                   reply.tag.number, ": ", reply.status.message())),
                         now_us);
  }
  if (!IsStep(reply.call)) return OnForming(reply, now_us);
  if (state_ == GroupState::kServing) OnStep(reply, now_us);
}

void ShardGroup::OnShardDied(const ShardDeath& death, int64_t now_us) {
  if (death.rank >= world()) return;
  last_words_[death.rank] = death.why;
  // The supervisor starts it again unasked.
  failures_.OnDied(death.rank, death.pid);
  if (health_.pid(death.rank) != death.pid) return;  // replaced already, or never answered
  failures_.SetRestarting(death.rank, death.pid);
  if (!InEpoch()) return;
  Lose(absl::UnavailableError(absl::StrCat("rank ", death.rank, ": process ", death.pid, " died")),
       death.rank, RestartReason::kExit, now_us);
}

int64_t ShardGroup::OnTimer(int64_t now_us) {
  if (closed_) return now_us + kWatchUs;
  const int64_t next_us = health_.Poll(epoch_, now_us);
  Watch(now_us);
  MaybeForm(now_us);
  return std::min(next_us, now_us + kWatchUs);
}

// -- How the ranks are ---------------------------------------------------------------------------

void ShardGroup::OnInfo(const ShardReply& reply, int64_t now_us) {
  const Rank rank = reply.rank;
  auto answer = health_.OnInfo(rank, reply, now_us);
  if (!answer.has_value() || closed_) return;
  if (!answer->ok()) {
    if (InEpoch()) return;  // a broken channel and a hung process are found by Watch
    // Nobody is there to answer: it said itself why it does not start.
    const absl::Status why =
        last_words_[rank].empty() ? answer->status() : absl::UnavailableError(last_words_[rank]);
    detail_ = absl::StrCat("rank ", rank, ": ", why.message());
    return health_.SayUnreachable(rank, why);
  }
  last_words_[rank].clear();
  InfoResponse& info = **answer;
  const bool asked_to_hold = claims_.OnInfo(rank, info, now_us);
  if (InEpoch()) return CheckMember(rank, info, now_us);
  if (epoch_ > 0 && info.epoch() > epoch_) {
    // Only routers raise epochs, and it was not this one.
    return Fatal(TakenOver(absl::StrCat("rank ", rank, " has seen epoch ", info.epoch(),
                                        ", this router's last is ", epoch_)));
  }
  if (!health_.IsProcess(rank, info)) {
    failures_.OnReplaced(rank, health_.pid(rank), info.pid());
  }
  health_.Accept(rank, std::move(info), now_us);
  if (asked_to_hold) health_.AskSoon();  // whether the claim is granted
  MaybeForm(now_us);
}

void ShardGroup::OnHold(const ShardReply& reply, int64_t now_us) {
  const ShardClaims::End end = claims_.OnReply(reply, forming_.formed_before(), now_us);
  if (closed_ || end == ShardClaims::End::kLost) return;  // what broke is found elsewhere
  const std::string why = absl::StrCat("rank ", reply.rank, ": ", reply.status.message());
  if (end == ShardClaims::End::kFenced) return Fatal(TakenOver(why));
  if (InEpoch()) return;
  const std::string detail =
      absl::StrCat("another router holds the shards; this one waits for its end (", why, ")");
  if (detail_ != detail) WEFT_LOG_WARN("{}", detail);
  detail_ = detail;
}

void ShardGroup::CheckMember(Rank rank, const InfoResponse& info, int64_t now_us) {
  const uint64_t pid = health_.pid(rank);
  if (!health_.IsProcess(rank, info)) {
    failures_.SetRestarting(rank, pid);  // it has been restarted already
    return Lose(absl::UnavailableError(absl::StrCat("rank ", rank, ": process ", pid,
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
  using Fault = ShardFinding::Fault;
  for (Rank rank = 0; rank < world(); ++rank) {
    const uint64_t pid = health_.pid(rank);
    const ShardFinding finding =
        health_.Examine(rank, ledger_.OwesSinceUs(rank), failures_.Restarting(rank, pid), now_us);
    switch (finding.fault) {
      case Fault::kNone:
        break;
      case Fault::kDisconnected:
        return Lose(finding.why, rank, RestartReason::kExit, now_us);
      case Fault::kProcessHung:
        if (InEpoch()) return Lose(finding.why, rank, RestartReason::kTimeout, now_us);
        failures_.AskRestart(rank, pid, RestartReason::kTimeout, finding.why);
        break;
      case Fault::kDeviceHung:
        // Ranks that wait for a hung one look the same: all are asked to leave, and who cannot is
        // restarted.
        return Lose(finding.why, std::nullopt, RestartReason::kTimeout, now_us);
    }
  }
}

// -- Forming an epoch ----------------------------------------------------------------------------

void ShardGroup::MaybeForm(int64_t now_us) {
  if (closed_ || InEpoch() || !failures_.MayAttempt(now_us) || !AllReady(now_us)) return;
  std::vector<InfoResponse> infos;
  for (Rank rank = 0; rank < world(); ++rank) infos.push_back(*health_.info(rank));
  if (const absl::Status fits = forming_.Check(infos); !fits.ok()) {
    // A launcher starts all shards with the same flags: before the first group another try would
    // end the same way. Elsewhere, and later, a shard may yet be started with the right ones.
    if (supervised_ && !forming_.formed_before()) {
      return Fatal(absl::InvalidArgumentError(fits.message()));
    }
    if (detail_ != fits.message()) WEFT_LOG_ERROR("no group: {}", std::string(fits.message()));
    detail_ = std::string(fits.message());
    return;
  }
  for (const InfoResponse& info : infos) epoch_ = std::max<Epoch>(epoch_, info.epoch());
  ++epoch_;
  EnterState(GroupState::kJoining, absl::StrCat("joining epoch ", epoch_), now_us);
  forming_.Begin(epoch_, infos);
}

bool ShardGroup::AllReady(int64_t now_us) {
  uint32_t known = 0;
  uint32_t ready = 0;
  for (Rank rank = 0; rank < world(); ++rank) {
    const std::optional<InfoResponse>& info = health_.info(rank);
    if (!info.has_value()) continue;
    ++known;
    if (leave_in_flight_[rank] || !claims_.Held(rank)) continue;
    if (info->state() == ShardState::SHARD_STATE_READY) {
      ++ready;
    } else if (info->state() == ShardState::SHARD_STATE_JOINED) {
      // An epoch of a router that is gone (a higher number fences it), or one of ours whose end it
      // missed.
      const Epoch theirs = info->epoch();
      const bool ours = theirs == epoch_;
      SendLeave(rank, ours ? epoch_ : std::max<Epoch>(theirs + 1, epoch_), !ours);
      health_.Forget(rank);
    } else if (info->state() == ShardState::SHARD_STATE_FAILED) {
      detail_ = absl::StrCat("rank ", rank, " failed: ", info->error());
    }
  }
  if (known == world() && state_ == GroupState::kConnecting) {
    EnterState(GroupState::kLoading, absl::StrCat(world(), " shards load"), now_us);
    return false;  // every rank is asked again in the new state
  }
  return ready == world();
}

void ShardGroup::OnForming(const ShardReply& reply, int64_t now_us) {
  const absl::StatusOr<EpochForming::Progress> progress = forming_.OnReply(reply);
  if (!progress.ok()) return LoseAfterCall(reply.rank, progress.status(), now_us);
  if (*progress == EpochForming::Progress::kJoined) {
    EnterState(GroupState::kWarming, absl::StrCat("warming up epoch ", epoch_), now_us);
    forming_.Warm();
  } else if (*progress == EpochForming::Progress::kWarm) {
    Formed(now_us);
  }
}

void ShardGroup::Formed(int64_t now_us) {
  const FormedGroup group = forming_.Take();
  failures_.OnFormed(now_us);
  failed_attempt_.clear();
  ledger_.Reset(epoch_, world());
  health_.SetOnCpu(group.info.device() == "cpu");
  health_.Restart(now_us);
  EnterState(GroupState::kServing, "", now_us);
  WEFT_LOG_INFO("group formed epoch={} shards={} kv_groups={} kv_blocks={} isa={}{}", epoch_,
                world(), group.info.kv_groups_size(), group.kv_blocks, group.agreement.isa, tag_);
  listener_->OnGroupFormed(group, now_us);
}

// -- Steps ---------------------------------------------------------------------------------------

void ShardGroup::SendStep(ShardCall call, StepNumber step, const SharedBytes& request,
                          int64_t now_us) {
  WEFT_CHECK(state_ == GroupState::kServing && IsStep(call));
  ledger_.Sent(step, now_us);
  shards_.SendAll(call, request, {epoch_, step}, StepTimeoutUs());
}

void ShardGroup::SendMasks(StepNumber step, const SharedBytes& request) {
  WEFT_CHECK(state_ == GroupState::kServing);
  shards_.SendAll(ShardCall::kMaskRows, request, {epoch_, step}, StepTimeoutUs());
}

int64_t ShardGroup::StepTimeoutUs() const {
  return std::max(kStepTimeoutsPerHang * health_.hang_timeout_us(), kStepTimeoutMinUs);
}

void ShardGroup::OnStep(const ShardReply& reply, int64_t now_us) {
  const Rank rank = reply.rank;
  if (!reply.status.ok()) {
    const absl::Status why(reply.status.code(),
                           absl::StrCat("rank ", rank, ", ", CallName(reply.call), ": step ",
                                        reply.tag.number, ": ", reply.status.message()));
    return LoseAfterCall(rank, why, now_us);
  }
  StepAnswer answer;
  answer.call_us = reply.call_us;
  if (!answer.response.ParseFromString(reply.body)) {
    return FailEpoch(absl::InternalError(absl::StrCat("rank ", rank, ": malformed step answer")),
                     now_us);
  }
  health_.OnStep(rank, now_us);
  const weft::shard::v1::StepTimings& timings = answer.response.timings();
  probe_->ShardStep(first_rank_ + rank, timings.device_us());
  if (probe_->timeline().on()) {
    probe_->timeline().Add(
        TimelineEvent::Reply(group_, rank, reply.tag.number, now_us - reply.call_us, now_us,
                             {static_cast<uint32_t>(reply.call), timings.queue_us(),
                              timings.host_us(), timings.device_us(), timings.comm_us(),
                              static_cast<uint32_t>(epoch_), timings.answered_us()}));
  }
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
  // Attempts go on for as long as they fail in the same way.
  const std::string text(why.message());
  if (served || std::exchange(failed_attempt_, text) != text) {
    WEFT_LOG_WARN("group lost epoch={} state={} reason=\"{}\"{}", epoch_, GroupStateName(state_),
                  text, tag_);
  }
  if (served) {
    failures_.OnServingLost(now_us);
  } else {
    failures_.OnAttemptFailed(now_us);
  }
  const GroupState next =
      forming_.formed_before() ? GroupState::kRecovering : GroupState::kConnecting;
  EnterState(next, std::string(why.message()), now_us);
  for (Rank rank = 0; rank < world(); ++rank) {
    if (dead == rank || !shards_.client(rank).Connected()) {
      const RestartReason because = dead == rank ? reason : RestartReason::kExit;
      // A channel may break under a shard that is well, as when this process was stopped for a
      // while: it is connected again, and one that is not well is found by its silence.
      if (because != RestartReason::kExit || !health_.ProcessThere(rank)) {
        failures_.AskRestart(rank, health_.pid(rank), because, why);
      }
      probe_->ShardUp(first_rank_ + rank, false);
    } else {
      SendLeave(rank, epoch_, /*whole=*/false);
    }
  }
  if (served) listener_->OnGroupLost(why, now_us);
}

void ShardGroup::LoseAfterCall(Rank rank, const absl::Status& why, int64_t now_us) {
  const bool dead = absl::IsUnavailable(why);
  Lose(why, dead ? std::optional(rank) : std::nullopt,
       dead ? RestartReason::kExit : RestartReason::kComm, now_us);
}

void ShardGroup::SendLeave(Rank rank, Epoch epoch, bool whole) {
  weft::shard::v1::LeaveGroupRequest request;
  request.set_epoch(epoch);
  request.set_router_id(router_id_);
  request.set_keep(whole);
  leave_in_flight_[rank] = true;
  shards_.Send(rank, ShardCall::kLeaveGroup, request, {epoch_, 0}, kLeaveTimeoutUs);
}

void ShardGroup::OnLeave(const ShardReply& reply) {
  const Rank rank = reply.rank;
  leave_in_flight_[rank] = false;
  health_.Forget(rank);
  if (reply.status.ok() || closed_) return;
  const absl::Status why(reply.status.code(),
                         absl::StrCat("rank ", rank, ", LeaveGroup: ", reply.status.message()));
  // Another router holds the shard by now: what becomes of its epochs is that one's business.
  if (absl::IsAlreadyExists(why)) return;
  if (absl::IsFailedPrecondition(why)) return Fatal(TakenOver(why.message()));
  // A shard that cannot become idle exits by itself; one that cannot even do that is killed.
  failures_.AskRestart(rank, health_.pid(rank), RestartReason::kTimeout, why);
}

void ShardGroup::Fatal(const absl::Status& why) {
  closed_ = true;
  detail_ = std::string(why.message());
  listener_->OnGroupFatal(why);
}

void ShardGroup::Leave(int64_t now_us) {
  closed_ = true;
  if (!InEpoch()) return;
  EnterState(GroupState::kConnecting, "leaving", now_us);
  for (Rank rank = 0; rank < world(); ++rank) SendLeave(rank, epoch_, /*whole=*/true);
}

bool ShardGroup::leaving() const {
  return std::find(leave_in_flight_.begin(), leave_in_flight_.end(), true) !=
         leave_in_flight_.end();
}

void ShardGroup::EnterState(GroupState state, std::string detail, int64_t now_us) {
  state_ = state;
  detail_ = std::move(detail);
  probe_->SetGroupState(state, epoch_, group_);
  health_.EnterState(state, now_us);
}

}  // namespace weft::router
