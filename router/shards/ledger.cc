#include "router/shards/ledger.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::router {
namespace {

// A rank may be this many steps behind rank 0.
constexpr StepNumber kStepsBehindMax = 2;

}  // namespace

uint32_t HashIds(const google::protobuf::RepeatedField<uint32_t>& ids) {
  uint32_t hash = 2166136261u;
  for (uint32_t id : ids) {
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ ((id >> (8 * byte)) & 0xFF)) * 16777619u;
    }
  }
  return hash;
}

void StepLedger::Reset(Epoch epoch, uint32_t world) {
  epoch_ = epoch;
  world_ = world;
  steps_.clear();
}

void StepLedger::Sent(StepNumber step, int64_t now_us) {
  WEFT_CHECK(steps_.empty() || steps_.back().step + 1 == step);
  Step& entry = steps_.emplace_back();
  entry.step = step;
  entry.sent_us = now_us;
  entry.answered.resize(world_, false);
  entry.missing = world_;
}

absl::Status StepLedger::Answered(Rank rank, StepAnswer answer) {
  const weft::shard::v1::StepResponse& response = answer.response;
  const StepNumber first = steps_.empty() ? 0 : steps_.front().step;
  if (response.epoch() != epoch_ || steps_.empty() || response.step() < first ||
      response.step() > steps_.back().step) {
    return absl::InternalError(absl::StrCat("rank ", rank, " answered step ", response.step(),
                                            " of epoch ", response.epoch(),
                                            ", which is not in flight"));
  }
  Step& entry = steps_[response.step() - first];
  if (entry.answered[rank]) {
    return absl::InternalError(
        absl::StrCat("rank ", rank, " answered step ", response.step(), " twice"));
  }
  if (rank == 0 && HashIds(response.ids()) != response.ids_hash()) {
    return absl::InternalError(
        absl::StrCat("rank 0's ids of step ", response.step(), " do not match their hash"));
  }
  if (entry.hash.value_or(response.ids_hash()) != response.ids_hash()) {
    return absl::InternalError(absl::StrCat("ranks sampled different tokens in step ",
                                            response.step(), " (seen on rank ", rank, ")"));
  }
  entry.hash = response.ids_hash();
  entry.answered[rank] = true;
  --entry.missing;
  if (rank == 0) entry.from_rank_0 = std::move(answer);
  while (!steps_.empty() && steps_.front().missing == 0 && steps_.front().taken) {
    steps_.pop_front();
  }
  return absl::OkStatus();
}

std::optional<StepAnswer> StepLedger::TakeNext() {
  for (Step& entry : steps_) {
    if (entry.taken) continue;
    // The front is the oldest step that some rank still owes.
    if (!entry.from_rank_0.has_value()) return std::nullopt;
    if (steps_.front().missing > 0 && entry.step - steps_.front().step >= kStepsBehindMax) {
      return std::nullopt;
    }
    entry.taken = true;
    std::optional<StepAnswer> answer = std::move(entry.from_rank_0);
    entry.from_rank_0.reset();
    while (!steps_.empty() && steps_.front().missing == 0 && steps_.front().taken) {
      steps_.pop_front();
    }
    return answer;
  }
  return std::nullopt;
}

int64_t StepLedger::OwesSinceUs(Rank rank) const {
  for (const Step& entry : steps_) {
    if (!entry.answered[rank]) return entry.sent_us;
  }
  return 0;
}

}  // namespace weft::router
