#include "router/recording/recorder.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/version.h"
#include "router/recording/digest.h"

namespace weft::router {

using recording::DigestOf;
using recording::RecordKind;

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Create(recording::RecordOptions options,
                                                           uint64_t recording) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<recording::PartWriter> writer,
                        recording::PartWriter::Create(std::move(options)));
  return std::unique_ptr<Recorder>(new Recorder(std::move(writer), recording));
}

Recorder::Recorder(std::unique_ptr<recording::PartWriter> writer, uint64_t recording)
    : writer_(std::move(writer)) {
  head_.recording = recording;
  head_.version = Version();
  head_.revision = Revision();
}

void Recorder::Begin(const SchedulerConfig& config, Scheduler* scheduler) {
  scheduler_ = scheduler;
  head_.config = config;
  scheduler->SetTap(this);
  BeginPart(/*with_state=*/false);
}

void Recorder::Finish() {
  if (writer_ == nullptr) return;
  if (scheduler_ != nullptr) {
    const recording::End end = {head_.events, head_.plans};
    Write(RecordKind::kEnd, last_us_, end);
  }
  writer_.reset();
}

template <typename Fields>
void Recorder::Encode(RecordKind kind, int64_t now_us, const Fields& fields) {
  record_.clear();
  recording::Encoder encoder(&record_);
  encoder.Number(kind);
  encoder.Signed(now_us - last_us_);
  last_us_ = now_us;
  Fields::Code(encoder, fields);
}

template <typename Fields>
void Recorder::Write(RecordKind kind, int64_t now_us, const Fields& fields) {
  Encode(kind, now_us, fields);
  ++head_.events;
  writer_->Push(record_);
}

void Recorder::BeginPart(bool with_state) {
  head_.has_state = with_state;
  const int64_t now_us = std::exchange(last_us_, 0);
  Encode(RecordKind::kHead, now_us, head_);
  std::unique_ptr<SchedulerState> state;
  if (with_state) {
    state = std::make_unique<SchedulerState>();
    scheduler_->Save(state.get());
  }
  writer_->BeginPart(record_, std::move(state));
}

void Recorder::OnGroupFormed(const GroupInfo& group, int64_t now_us,
                             absl::Span<const Ended> ended) {
  if (this->ended()) return;
  formed_.epoch = group.epoch;
  formed_.kv_blocks = group.kv_blocks;
  formed_.costs.assign(group.costs.begin(), group.costs.end());
  formed_.ended_digest = DigestOf(ended);
  Write(RecordKind::kGroupFormed, now_us, formed_);
}

void Recorder::OnGroupLost(int64_t now_us, absl::Span<const Ended> ended) {
  if (this->ended()) return;
  const recording::GroupLost lost = {DigestOf(ended)};
  Write(RecordKind::kGroupLost, now_us, lost);
}

void Recorder::OnArrival(const Arrival& arrival, uint32_t prompt_tokens, int64_t now_us,
                         const absl::Status& status) {
  if (ended()) return;
  arrival_.id = arrival.id;
  // Longer than any context is refused, however long.
  arrival_.prompt_tokens = std::min(prompt_tokens, head_.config.context_tokens_max + 1);
  arrival_.max_new_tokens = arrival.max_new_tokens;
  arrival_.tenant = arrival.tenant;
  arrival_.tenant_weight = arrival.tenant_weight;
  arrival_.priority = arrival.priority;
  // As in a saved state: whether no token can end the sequence.
  arrival_.ignore_eos = arrival.ignore_eos && arrival.stop_ids.empty();
  arrival_.bypass_prefix_cache = arrival.bypass_prefix_cache;
  arrival_.status = static_cast<uint32_t>(status.code());
  arrival_.hashes.clear();
  if (status.ok()) {
    for (const BlockHash& hash : scheduler_->BlockHashes(arrival.id)) {
      arrival_.hashes.push_back(hash.low);
    }
  }
  Write(RecordKind::kArrival, now_us, arrival_);
}

void Recorder::OnCutLimit(SequenceId id, uint32_t tokens_max, int64_t now_us,
                          const absl::Status& status) {
  if (ended()) return;
  const recording::CutLimitRecord cut = {id, tokens_max, static_cast<uint32_t>(status.code())};
  Write(RecordKind::kCutLimit, now_us, cut);
}

void Recorder::OnCancel(SequenceId id, int64_t now_us, absl::Span<const Ended> ended) {
  if (this->ended()) return;
  const recording::CancelRecord cancel = {id, DigestOf(ended)};
  Write(RecordKind::kCancel, now_us, cancel);
}

void Recorder::OnFlush(int64_t now_us) {
  if (ended()) return;
  Write(RecordKind::kFlush, now_us, recording::Flush());
}

void Recorder::OnStepDone(StepNumber step, const StepTime& time, int64_t now_us,
                          absl::Span<const Emitted> emitted, absl::Span<const Ended> ended) {
  if (this->ended()) return;
  done_.step = step;
  done_.device_us = time.device_us;
  done_.eos_rows.clear();
  done_.blocks.clear();
  // Both lists are in the order of the rows; few sequences end in one step.
  size_t next_ended = 0;
  for (const Emitted& e : emitted) {
    if (next_ended < ended.size() && ended[next_ended].id == e.id) {
      if (ended[next_ended++].reason == EndReason::kEosToken) done_.eos_rows.push_back(e.row);
      continue;
    }
    if (!head_.config.prefix_cache) continue;
    const size_t length = scheduler_->Log(e.id).size();
    if (length % head_.config.block_tokens != 0) continue;
    done_.blocks.push_back({e.row, scheduler_->BlockHashes(e.id).back().low});
  }
  done_.digest = DigestOf(emitted, ended);
  Write(RecordKind::kStepDone, now_us, done_);
}

void Recorder::OnPlan(const StepPlan* plan, int64_t now_us) {
  if (ended()) return;
  head_.plans += plan != nullptr;
  Write(RecordKind::kPlan, now_us, recording::RecordOf(plan));
  // Nothing more can be planned now: the shards have their work, or there is none.
  if (plan == nullptr && writer_->part_is_full()) BeginPart(/*with_state=*/true);
}

}  // namespace weft::router
