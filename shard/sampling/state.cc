#include "shard/sampling/state.h"

namespace weft::shard {
namespace {

// Room for this many new distinct ids before a count has to grow.
constexpr size_t kOutputReserve = 512;

}  // namespace

void SlotState::Begin(const SequenceStart& start) {
  End();
  active_ = true;
  params_ = start.sampling;
  prompt_len_ = start.prompt_len;
  if (!params_.has_penalties()) return;
  counts_.reserve(start.penalty_ids.size() + kOutputReserve);
  index_of_.reserve(start.penalty_ids.size() + kOutputReserve);
  for (size_t i = 0; i < start.penalty_ids.size(); ++i) {
    Count& count = CountOf(start.penalty_ids[i]);
    if (i < start.prompt_len) {
      count.in_prompt = true;
    } else {
      ++count.output;
    }
  }
}

void SlotState::End() {
  active_ = false;
  last_token_ = kNoToken;
  counts_.clear();
  index_of_.clear();
}

void SlotState::Append(TokenId id) {
  last_token_ = id;
  if (params_.has_penalties()) ++CountOf(id).output;
}

SlotState::Count& SlotState::CountOf(TokenId id) {
  const auto [found, added] = index_of_.try_emplace(id, static_cast<uint32_t>(counts_.size()));
  if (added) counts_.push_back(Count{id, false, 0});
  return counts_[found->second];
}

}  // namespace weft::shard
