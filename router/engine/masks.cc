// The part of the engine loop that sees to masked rows: each gets its mask once the token before it
// is known, worked out by other threads while the shards run the row's forward.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "router/engine/loop.h"

namespace weft::router {

void EngineLoop::NoteMaskedRows(const SentStep& sent) {
  for (size_t i = 0; i < sent.rows.size(); ++i) {
    const SequenceId sequence = sent.sequences[i];
    const auto live = live_.find(sequence);
    if (live == live_.end() || live->second.constraint == nullptr) continue;
    if (masked_steps_.Add(sent.step, sent.rows[i], sequence)) {
      mask_jobs_[sent.step].push_back({sent.rows[i], sequence, live->second.constraint});
    }
  }
  masked_steps_.Sent(sent.step);
}

void EngineLoop::MakeNextMasks(StepNumber answered, const std::vector<SequenceId>& sequences) {
  if (masked_steps_.rows() == 0) return;
  masked_steps_.Answered(answered);
  for (const SequenceId sequence : sequences) {
    const auto live = live_.find(sequence);
    if (live == live_.end() || live->second.constraint == nullptr) continue;
    const std::optional<MaskedSteps::Row> row = masked_steps_.TakeNext(sequence);
    if (!row.has_value()) continue;
    mask_jobs_[row->step].push_back({row->slot, sequence, live->second.constraint});
  }
}

void EngineLoop::OnMasks(MadeMasks made, int64_t now_us) {
  for (const auto& [sequence, why] : made.failures) {
    if (live_.contains(sequence)) Fail(sequence, why, now_us);
  }
  if (made.epoch != group_->epoch() || group_->state() != GroupState::kServing) return;
  masked_steps_.Made(made.step, made.sequences, std::move(made.rows));
}

void EngineLoop::SendMasks() {
  for (auto& [step, jobs] : mask_jobs_) {
    mask_maker_->Make(group_->epoch(), step, vocab_size(), std::move(jobs), [this](MadeMasks made) {
      // They have room of their own, as replies have.
      WEFT_CHECK(queue_.TryPush(Event(std::move(made))) || queue_.closed());
      poller_->Wake();
    });
  }
  mask_jobs_.clear();
  for (MaskedSteps::Part& part : masked_steps_.TakeReady()) {
    if (group_->state() != GroupState::kServing) return;
    group_->SendMasks(part.step, std::make_shared<const std::string>(std::move(part.request)));
  }
}

}  // namespace weft::router
