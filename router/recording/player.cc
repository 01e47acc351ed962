#include "router/recording/player.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/recording/digest.h"

namespace weft::router::recording {
namespace {

constexpr uint32_t kBlockTokensMax = 4096;
// Thousands of years from any beginning, and priorities are worth no more: sums do not overflow.
constexpr int64_t kTimeAbsMaxUs = int64_t{1} << 55;
constexpr int64_t kAgeingMaxUs = kTimeAbsMaxUs / kPriorityAbsMax;

absl::Status Unsound(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("no scheduler was ever told this: ", what));
}

template <typename Fields>
absl::Status DecodeFields(Decoder& decoder, Fields* fields) {
  Fields::Code(decoder, *fields);
  return decoder.ok() ? absl::OkStatus() : Unsound("a record that ends too early");
}

std::string ConfigBytes(const Head& head) {
  Head alone;
  alone.config = head.config;
  std::string bytes;
  Encoder encoder(&bytes);
  Head::Code(encoder, alone);
  return bytes;
}

std::string Describe(const PlanRecord& plan) {
  if (plan.step == 0) return "nothing to do";
  return absl::StrFormat(
      "step %d of %d rows, %d chunks with %d tokens, %d drops, %d new blocks, expected to take %d "
      "us (digest %016x)",
      plan.step, plan.rows, plan.chunks, plan.chunk_tokens, plan.drops, plan.blocks,
      plan.predicted_us, plan.digest);
}

}  // namespace

absl::Status Player::Play(uint64_t part_number, absl::string_view payload) {
  part_ = part_number;
  Decoder decoder(payload);
  while (!decoder.at_end() && (report_.difference.empty() || play_on_)) {
    RecordKind kind{};
    int64_t delta_us = 0;
    decoder.Number(kind);
    decoder.Signed(delta_us);
    if (!decoder.ok()) return Annotate(Unsound("a record that ends too early"), Place());
    // A head begins a new count of time.
    if (kind == RecordKind::kHead) now_us_ = 0;
    if (delta_us < -kTimeAbsMaxUs || delta_us > kTimeAbsMaxUs ||
        std::abs(now_us_ + delta_us) > kTimeAbsMaxUs) {
      return Annotate(Unsound("a time that no clock shows"), Place());
    }
    now_us_ += delta_us;
    if (absl::Status status = PlayRecord(kind, decoder); !status.ok()) {
      return Annotate(status, Place());
    }
    LeaveEnded();
    if (play_on_ && scheduler_ != nullptr) scheduler_->CheckInvariantsForTest();
    if (kind == RecordKind::kHead || kind == RecordKind::kState) continue;
    ++event_;
    ++report_.events;
  }
  return absl::OkStatus();
}

absl::Status Player::PlayRecord(RecordKind kind, Decoder& decoder) {
  if (kind == RecordKind::kHead) return BeginPart(decoder);
  if (!has_begun_) return Unsound("an event before any beginning");
  if (kind == RecordKind::kState) return TakeState(decoder);
  if (awaits_state_) return Unsound("an event before the state it starts from");
  if (report_.complete) return Unsound("an event behind the end of its recording");
  ended_.clear();
  emitted_.clear();
  const auto decode_and = [&](auto fields, auto play) -> absl::Status {
    WEFT_RETURN_IF_ERROR(DecodeFields(decoder, &fields));
    return (this->*play)(fields);
  };
  switch (kind) {
    case RecordKind::kGroupFormed:
      return decode_and(GroupFormed(), &Player::PlayGroupFormed);
    case RecordKind::kGroupLost:
      return decode_and(GroupLost(), &Player::PlayGroupLost);
    case RecordKind::kArrival:
      return decode_and(ArrivalRecord(), &Player::PlayArrival);
    case RecordKind::kCutLimit:
      return decode_and(CutLimitRecord(), &Player::PlayCutLimit);
    case RecordKind::kCancel:
      return decode_and(CancelRecord(), &Player::PlayCancel);
    case RecordKind::kFlush:
      return decode_and(Flush(), &Player::PlayFlush);
    case RecordKind::kStepDone:
      return decode_and(StepDone(), &Player::PlayStepDone);
    case RecordKind::kPlan:
      return decode_and(PlanRecord(), &Player::PlayPlan);
    case RecordKind::kEnd:
      return decode_and(End(), &Player::PlayEnd);
    default:
      return Unsound(absl::StrCat("a record of kind ", static_cast<int>(kind)));
  }
}

// -- Beginnings ----------------------------------------------------------------------------------

absl::Status Player::BeginPart(Decoder& decoder) {
  Head head;
  WEFT_RETURN_IF_ERROR(DecodeFields(decoder, &head));
  head.config.label_ids = true;
  // Samples nobody may take for a label.
  head.config.eos_ids = {kNoToken};
  WEFT_RETURN_IF_ERROR(CheckConfig(head.config));
  // It is shown as it is.
  report_.recorded_by = absl::CHexEscape(absl::StrCat(head.version, " (", head.revision, ")"));
  awaits_state_ = head.has_state;
  const bool continues = has_begun_ && head.recording == head_.recording;
  const bool has_same_config = ConfigBytes(head) == ConfigBytes(head_);
  head_ = std::move(head);
  if (continues) {
    if (head_.events != event_ || head_.plans != plans_ || !head_.has_state || report_.complete) {
      return Unsound(absl::StrCat("a part that goes on behind event ", head_.events));
    }
    if (!has_same_config) return Unsound("a part with other settings than the one before");
    return absl::OkStatus();
  }
  // Only the first parts of all are rotated away.
  if (has_begun_ && (head_.events > 0 || head_.has_state)) {
    return Unsound(absl::StrCat("a part of another recording, behind its event ", head_.events,
                                ", whose beginning is missing"));
  }
  has_begun_ = true;
  ++report_.recordings;
  report_.complete = false;
  if (report_.recordings == 1) report_.first_event = head_.events;
  event_ = head_.events;
  plans_ = head_.plans;
  in_flight_.clear();
  labels_.clear();
  prompts_.clear();
  prompt_tokens_ = 0;
  formed_ = false;
  scheduler_ = head_.has_state ? nullptr : std::make_unique<Scheduler>(head_.config);
  return absl::OkStatus();
}

absl::Status Player::TakeState(Decoder& decoder) {
  if (!std::exchange(awaits_state_, false)) return Unsound("a state that no part begins with");
  SchedulerState state;
  DecodeState(decoder, &state);
  if (!decoder.ok()) return Unsound("a state that ends too early");
  WEFT_RETURN_IF_ERROR(CheckPool(state.kv_blocks));
  LabelState(&state);
  if (scheduler_ != nullptr) {
    SchedulerState played;
    scheduler_->Save(&played);
    std::string recorded_bytes;
    std::string played_bytes;
    EncodeState(state, &recorded_bytes);
    EncodeState(played, &played_bytes);
    ++report_.states;
    if (recorded_bytes != played_bytes) {
      Differs("the state recorded here is not where the events before it led this build");
    }
    return absl::OkStatus();
  }
  for (const SequenceState& s : state.sequences) {
    WEFT_RETURN_IF_ERROR(CheckNew(s.id, s.log_tokens));
    CameIn(s.id, s.log_tokens);
  }
  WEFT_ASSIGN_OR_RETURN(scheduler_, Scheduler::Restore(head_.config, state));
  formed_ = state.formed;
  StepNumber step = state.next_step - state.in_flight.size();
  for (const StepState& saved : state.in_flight) {
    Flight& flight = in_flight_.emplace_back();
    flight.step = step++;
    for (const StepRow& row : saved.step_rows) {
      prompts_.try_emplace(row.id, 0);
      if (row.samples) flight.slots.push_back(row.slot);
    }
  }
  return absl::OkStatus();
}

absl::Status Player::CheckConfig(const SchedulerConfig& config) const {
  const auto within = [](uint64_t value, uint64_t least, uint64_t most) {
    return value >= least && value <= most;
  };
  const bool fits = within(config.running_max, 1, kRunningMax) &&
                    within(config.step_tokens_max, config.running_max, kStepTokensMax) &&
                    within(config.block_tokens, 1, kBlockTokensMax) &&
                    within(config.kv_windows.size(), 1, kKvGroupsMax) &&
                    within(config.context_tokens_max, 1, limits_.context_tokens) &&
                    within(config.waiting_max, 0, limits_.waiting) && config.ageing_us >= 0 &&
                    config.ageing_us <= kAgeingMaxUs && within(config.watermark_permille, 0, 1000);
  return fits ? absl::OkStatus() : Unsound("settings out of their ranges");
}

absl::Status Player::CheckPool(uint32_t kv_blocks) const {
  if (kv_blocks <= limits_.pool_blocks &&
      uint64_t{kv_blocks} * head_.config.block_tokens <= limits_.pool_tokens) {
    return absl::OkStatus();
  }
  return Unsound("a pool that no device holds");
}

absl::Status Player::CheckNew(SequenceId id, uint32_t prompt_tokens) const {
  if (prompt_tokens_ + prompt_tokens > limits_.prompt_tokens) {
    return Unsound("more prompts than a router holds");
  }
  if (!prompts_.contains(id)) return absl::OkStatus();
  return Unsound(absl::StrCat("sequence ", id, " for a second time"));
}

void Player::CameIn(SequenceId id, uint32_t prompt_tokens) {
  prompts_[id] = prompt_tokens;
  prompt_tokens_ += prompt_tokens;
}

void Player::LeaveEnded() {
  for (const Ended& ended : ended_) {
    const auto prompt = prompts_.find(ended.id);
    if (prompt != prompts_.end()) prompt_tokens_ -= std::exchange(prompt->second, 0);
  }
  ended_.clear();
}

uint32_t Player::Label(uint64_t hash) {
  return labels_.try_emplace(hash, static_cast<uint32_t>(labels_.size() + 1)).first->second;
}

void Player::LabelState(SchedulerState* state) {
  for (SequenceState& sequence : state->sequences) {
    for (BlockHash& hash : sequence.block_hashes) hash.low = Label(hash.low);
  }
  for (PublishedBlock& block : state->published) block.hash.low = Label(block.hash.low);
}

// -- Events --------------------------------------------------------------------------------------

absl::Status Player::PlayGroupFormed(const GroupFormed& formed) {
  if (formed_) return Unsound("a group that forms beside another");
  WEFT_RETURN_IF_ERROR(CheckPool(formed.kv_blocks));
  formed_ = true;
  GroupInfo group;
  group.epoch = formed.epoch;
  group.kv_blocks = formed.kv_blocks;
  group.costs = formed.costs;
  scheduler_->OnGroupFormed(group, now_us_, &ended_);
  CompareEnded("the group that forms", formed.ended_digest);
  return absl::OkStatus();
}

absl::Status Player::PlayGroupLost(const GroupLost& lost) {
  formed_ = false;
  in_flight_.clear();
  scheduler_->OnGroupLost(now_us_, &ended_);
  CompareEnded("the lost group", lost.ended_digest);
  return absl::OkStatus();
}

absl::Status Player::PlayArrival(const ArrivalRecord& record) {
  const uint32_t block_tokens = head_.config.block_tokens;
  if (record.prompt_tokens > head_.config.context_tokens_max + 1 ||
      record.hashes.size() > record.prompt_tokens / block_tokens) {
    return Unsound("a prompt of another length");
  }
  // One that is live is refused.
  if (!scheduler_->IsLive(record.id)) {
    WEFT_RETURN_IF_ERROR(CheckNew(record.id, record.prompt_tokens));
  }
  std::vector<TokenId> ids(record.prompt_tokens, 0);
  for (size_t i = 0; i < record.hashes.size(); ++i) {
    ids[(i + 1) * block_tokens - 1] = Label(record.hashes[i]);
  }
  Arrival arrival;
  arrival.id = record.id;
  arrival.prompt = Prompt(std::move(ids));
  arrival.max_new_tokens = record.max_new_tokens;
  arrival.tenant = record.tenant;
  arrival.tenant_weight = record.tenant_weight;
  arrival.priority = record.priority;
  arrival.ignore_eos = record.ignore_eos;
  arrival.bypass_prefix_cache = record.bypass_prefix_cache;
  const absl::Status status = scheduler_->OnArrival(std::move(arrival), now_us_);
  if (status.ok()) CameIn(record.id, record.prompt_tokens);
  CompareStatus(absl::StrCat("the arrival of sequence ", record.id), record.status, status);
  return absl::OkStatus();
}

absl::Status Player::PlayCutLimit(const CutLimitRecord& cut) {
  const absl::Status status = scheduler_->CutLimit(cut.id, cut.tokens_max, now_us_);
  CompareStatus(absl::StrCat("the cut of sequence ", cut.id), cut.status, status);
  return absl::OkStatus();
}

absl::Status Player::PlayCancel(const CancelRecord& cancel) {
  scheduler_->OnCancel(cancel.id, now_us_, &ended_);
  CompareEnded(absl::StrCat("the cancel of sequence ", cancel.id), cancel.ended_digest);
  return absl::OkStatus();
}

absl::Status Player::PlayFlush(const Flush& /*flush*/) {
  scheduler_->OnFlush(now_us_);
  return absl::OkStatus();
}

absl::Status Player::PlayStepDone(const StepDone& done) {
  if (in_flight_.empty() || in_flight_.front().step != done.step) {
    return Unsound(absl::StrCat("an answer to step ", done.step, ", which is not the oldest"));
  }
  std::vector<SampledRow> rows;
  for (const Slot slot : in_flight_.front().slots) rows.push_back({slot, 0});
  in_flight_.pop_front();
  for (const uint32_t row : done.eos_rows) {
    if (row >= rows.size()) return Unsound("an end in a row that is not there");
    rows[row].token = kNoToken;
  }
  for (const StepDone::Block& block : done.blocks) {
    if (block.row >= rows.size()) return Unsound("a block of a row that is not there");
    rows[block.row].token = Label(block.hash);
  }
  scheduler_->OnStepDone(done.step, rows, {done.device_us}, now_us_, &emitted_, &ended_);
  if (DigestOf(emitted_, ended_) != done.digest) {
    Differs(absl::StrCat("step ", done.step, ": other rows got tokens, or others ended: here ",
                         emitted_.size(), " and ", ended_.size()));
  }
  return absl::OkStatus();
}

absl::Status Player::PlayPlan(const PlanRecord& recorded) {
  const StepPlan* const plan = scheduler_->Plan(now_us_);
  const PlanRecord played = RecordOf(plan);
  if (plan != nullptr) {
    Flight& flight = in_flight_.emplace_back();
    flight.step = plan->step;
    flight.slots = plan->decode_slots;
    for (const PlannedChunk& chunk : plan->chunks) {
      if (chunk.last) flight.slots.push_back(chunk.slot);
    }
  }
  plans_ += recorded.step > 0;
  report_.plans += recorded.step > 0;
  if (played.digest != recorded.digest || played.step != recorded.step) {
    Differs(absl::StrCat("the recorded plan is ", Describe(recorded), "; this build's is ",
                         Describe(played),
                         played.step == recorded.step && played.rows == recorded.rows &&
                                 played.chunk_tokens == recorded.chunk_tokens
                             ? "; they differ in slots, blocks or order"
                             : ""));
  }
  return absl::OkStatus();
}

absl::Status Player::PlayEnd(const End& end) {
  if (end.events != event_ || end.plans != plans_) return Unsound("an end that counts otherwise");
  report_.complete = true;
  return absl::OkStatus();
}

// -- Differences ---------------------------------------------------------------------------------

std::string Player::Place() const {
  return absl::StrFormat("part %d, event %d at %.6f s", part_, event_,
                         static_cast<double>(now_us_) * 1e-6);
}

void Player::Differs(absl::string_view how) {
  if (report_.difference.empty()) report_.difference = absl::StrCat(Place(), ": ", how);
}

void Player::CompareEnded(absl::string_view what, uint64_t recorded_digest) {
  if (DigestOf(absl::MakeConstSpan(ended_)) == recorded_digest) return;
  Differs(absl::StrCat(what, " ended other sequences: here ", ended_.size()));
}

void Player::CompareStatus(absl::string_view what, uint32_t recorded, const absl::Status& played) {
  if (static_cast<uint32_t>(played.code()) == recorded) return;
  Differs(absl::StrCat(what, " was answered with ",
                       absl::StatusCodeToString(static_cast<absl::StatusCode>(recorded)),
                       "; this build says ", played.ok() ? "OK" : played.ToString()));
}

}  // namespace weft::router::recording
