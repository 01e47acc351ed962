#include "router/shards/health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/log.h"

namespace weft::router {
namespace {

using weft::shard::v1::InfoResponse;

constexpr int64_t kInfoTimeoutUs = 1'000'000;
// While loading the bytes read are shown to people; while recovering every poll is waited for.
constexpr int64_t kLoadingPollUs = 100'000;
constexpr int64_t kRecoveringPollUs = 20'000;
// Heartbeats in a hang time-out.
constexpr int64_t kHeartbeatsPerTimeout = 10;
constexpr int64_t kHangTimeoutCpuMs = 5'000;
constexpr int64_t kHangTimeoutDeviceMs = 2'000;

}  // namespace

ShardHealth::ShardHealth(ShardHealthOptions options, ShardFanout* shards, Probe* probe)
    : options_(std::move(options)), shards_(shards), probe_(probe), ranks_(shards->world()) {}

// -- Polling -------------------------------------------------------------------------------------

void ShardHealth::EnterState(GroupState state, int64_t now_us) {
  state_ = state;
  ++generation_;
  for (RankState& rank : ranks_) {
    rank.info_in_flight = false;
    rank.info_due_us = InEpoch(state) ? now_us + InfoIntervalUs() : now_us;
    if (!InEpoch(state)) rank.info.reset();
  }
}

int64_t ShardHealth::Poll(Epoch epoch, int64_t now_us) {
  weft::shard::v1::InfoRequest request;
  request.set_protocol_version(kShardProtocolVersion);
  int64_t next_us = now_us + kLoadingPollUs;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankState& state = ranks_[rank];
    if (!state.info_in_flight && now_us >= state.info_due_us) {
      state.info_in_flight = true;
      state.info_due_us = now_us + InfoIntervalUs();
      // Outside an epoch the call waits for the shard to come up, so that it is seen at once.
      shards_->Send(rank, ShardCall::kInfo, request, {epoch, generation_}, kInfoTimeoutUs,
                    /*wait_for_ready=*/!InEpoch(state_));
    }
    if (!state.info_in_flight) next_us = std::min(next_us, state.info_due_us);
  }
  return next_us;
}

std::optional<absl::StatusOr<InfoResponse>> ShardHealth::OnInfo(Rank rank, const ShardReply& reply,
                                                                int64_t now_us) {
  RankState& state = ranks_[rank];
  absl::StatusOr<InfoResponse> answer = InfoResponse();
  if (!reply.status.ok()) {
    answer = reply.status;
  } else if (!answer->ParseFromString(reply.body)) {
    answer = absl::InternalError("malformed Info answer");
  }
  // Any answer is a sign of life, also one to a question of an earlier state.
  if (answer.ok() && IsProcess(rank, *answer)) state.vitals.OnInfo(*answer, now_us);
  if (reply.tag.number != generation_) return std::nullopt;
  state.info_in_flight = false;
  state.info_due_us = std::max(state.info_due_us, now_us);
  if (!answer.ok()) state.info.reset();
  return answer;
}

void ShardHealth::Accept(Rank rank, InfoResponse info, int64_t now_us) {
  RankState& state = ranks_[rank];
  if (!IsProcess(rank, info)) {
    state.process = {info.pid(), info.process_start_ticks(), info.pid_namespace()};
    state.vitals.Restart(now_us);
  }
  probe_->ShardUp(options_.first_rank + rank, true);
  probe_->ShardLoad(options_.first_rank + rank, info.load().bytes_done(), info.load().bytes_total(),
                    static_cast<double>(info.load().elapsed_us()) / 1e6);
  state.info = std::move(info);
  state.unreachable.clear();
}

void ShardHealth::Forget(Rank rank) {
  ranks_[rank].info.reset();
  ranks_[rank].info_due_us = 0;
}

void ShardHealth::AskSoon() {
  for (RankState& rank : ranks_) rank.info_due_us = 0;
}

void ShardHealth::SayUnreachable(Rank rank, const absl::Status& why) {
  probe_->ShardUp(options_.first_rank + rank, false);
  std::string& said = ranks_[rank].unreachable;
  if (said == why.message()) return;
  said = std::string(why.message());
  WEFT_LOG_WARN("waiting for a shard rank={} reason=\"{}\"", options_.first_rank + rank, said);
}

int64_t ShardHealth::InfoIntervalUs() const {
  if (InEpoch(state_)) {
    return std::max(hang_timeout_us() / kHeartbeatsPerTimeout, kRecoveringPollUs);
  }
  return state_ == GroupState::kRecovering ? kRecoveringPollUs : kLoadingPollUs;
}

// -- Looking for faults --------------------------------------------------------------------------

void ShardHealth::Restart(int64_t now_us) {
  for (RankState& state : ranks_) state.vitals.Restart(now_us);
}

ShardFinding ShardHealth::Examine(Rank rank, int64_t owes_since_us, bool restarting,
                                  int64_t now_us) {
  using Fault = ShardFinding::Fault;
  RankState& state = ranks_[rank];
  ShardClient& client = shards_->client(rank);
  if (InEpoch(state_) && !client.Connected()) {
    return {Fault::kDisconnected,
            absl::UnavailableError(absl::StrCat("rank ", rank, ": connection lost"))};
  }
  if (state.process.pid == 0 || restarting) return {};
  const int64_t timeout_us = hang_timeout_us();
  const ProcessCpuReader* read_cpu = client.is_local() ? &options_.read_cpu : nullptr;
  if (state.vitals.ProcessHung(now_us, timeout_us, state.process, read_cpu)) {
    return {Fault::kProcessHung, absl::DeadlineExceededError(absl::StrCat(
                                     "rank ", rank, ": no sign of life and no CPU time for ",
                                     timeout_us / 1000, " ms"))};
  }
  if (state_ == GroupState::kServing &&
      state.vitals.DeviceHung(now_us, timeout_us, owes_since_us, on_cpu_)) {
    return {Fault::kDeviceHung,
            absl::DeadlineExceededError(absl::StrCat(
                "rank ", rank, ": device thread shows no life for ", timeout_us / 1000, " ms"))};
  }
  return {};
}

bool ShardHealth::IsProcess(Rank rank, const InfoResponse& info) const {
  const ShardProcess& known = ranks_[rank].process;
  return info.pid() == known.pid && info.process_start_ticks() == known.start_ticks;
}

bool ShardHealth::ProcessThere(Rank rank) {
  return shards_->client(rank).is_local() && options_.read_cpu(ranks_[rank].process).has_value();
}

int64_t ShardHealth::hang_timeout_us() const {
  if (options_.hang_timeout_ms > 0) return options_.hang_timeout_ms * 1000;
  return (on_cpu_ ? kHangTimeoutCpuMs : kHangTimeoutDeviceMs) * 1000;
}

int ShardHealth::percent() const {
  uint64_t done = 0;
  uint64_t total = 0;
  uint64_t known = 0;
  for (const RankState& state : ranks_) {
    if (!state.info.has_value()) continue;
    done += state.info->load().bytes_done();
    total += state.info->load().bytes_total();
    ++known;
  }
  if (total == 0) return 0;
  // Who has not answered has loaded nothing, of as much as the others have on average.
  return static_cast<int>(100 * std::min(done, total) * known / (total * ranks_.size()));
}

}  // namespace weft::router
