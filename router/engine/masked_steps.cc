#include "router/engine/masked_steps.h"

#include "common/check.h"
#include "common/limits.h"
#include "router/engine/mask_row.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {
namespace {

// A part is sent before it grows beyond what a message may have.
constexpr size_t kPartBytesMax = kShardMessageBytesMax / 4;

}  // namespace

void MaskedSteps::Reset(Epoch epoch) {
  epoch_ = epoch;
  steps_.clear();
  ready_.clear();
}

bool MaskedSteps::Add(StepNumber step, Slot slot, SequenceId sequence) {
  bool alone = true;
  for (const Step& earlier : steps_) {
    if (earlier.number < step) alone = alone && !earlier.rows.contains(sequence);
  }
  if (steps_.empty() || steps_.back().number != step) {
    WEFT_CHECK(steps_.empty() || steps_.back().number < step);
    steps_.emplace_back().number = step;
  }
  Step& current = steps_.back();
  WEFT_CHECK(
      current.rows.try_emplace(sequence, Entry{slot, alone ? State::kMaking : State::kWaiting})
          .second);
  ++current.missing;
  return alone;
}

void MaskedSteps::Sent(StepNumber step) {
  if (steps_.empty() || steps_.back().number != step) return;
  steps_.back().sent = true;
  if (steps_.back().missing == 0) Flush(&steps_.back());
}

void MaskedSteps::Answered(StepNumber step) {
  while (!steps_.empty() && steps_.front().number <= step) steps_.pop_front();
}

std::optional<MaskedSteps::Row> MaskedSteps::TakeNext(SequenceId sequence) {
  for (Step& step : steps_) {
    const auto row = step.rows.find(sequence);
    if (row == step.rows.end() || row->second.state != State::kWaiting) continue;
    row->second.state = State::kMaking;
    return Row{step.number, row->second.slot};
  }
  return std::nullopt;
}

void MaskedSteps::Free(SequenceId sequence) {
  for (Step& step : steps_) {
    const auto row = step.rows.find(sequence);
    if (row == step.rows.end() || row->second.state != State::kWaiting) continue;
    row->second.state = State::kMade;
    std::string free;
    AppendFreeRow(row->second.slot, &free);
    Put(&step, free, 1);
  }
}

void MaskedSteps::Made(StepNumber number, const std::vector<SequenceId>& sequences,
                       std::string rows) {
  for (Step& step : steps_) {
    if (step.number != number) continue;
    for (const SequenceId sequence : sequences) {
      Entry& row = step.rows.at(sequence);
      WEFT_CHECK(row.state == State::kMaking);
      row.state = State::kMade;
    }
    Put(&step, rows, sequences.size());
  }
}

void MaskedSteps::Put(Step* step, absl::string_view rows, size_t count) {
  if (!step->bytes.empty() && step->bytes.size() + rows.size() > kPartBytesMax) Flush(step);
  step->bytes.append(rows.data(), rows.size());
  WEFT_CHECK_GE(step->missing, count);
  step->missing -= count;
  if (step->missing == 0 && step->sent) Flush(step);
}

void MaskedSteps::Flush(Step* step) {
  if (step->bytes.empty()) return;
  weft::shard::v1::MaskRowsRequest header;
  header.set_epoch(epoch_);
  header.set_step(step->number);
  // Serialised messages one behind the other are one message (Protobuf's encoding guide).
  Part& part = ready_.emplace_back();
  part.step = step->number;
  part.request = header.SerializeAsString();
  part.request += step->bytes;
  step->bytes.clear();
}

size_t MaskedSteps::rows() const {
  size_t count = 0;
  for (const Step& step : steps_) count += step.rows.size();
  return count;
}

}  // namespace weft::router
