#include "shard/device/cuda/slot_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"

namespace weft::shard {
namespace {

using kernels::cuda::SamplingRow;

uint32_t FeaturesOf(const SamplingParams& params) {
  uint32_t features = 0;
  const bool draws = params.temperature > 0.0f;
  if (draws &&
      (params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f || params.typical_p < 1.0f)) {
    features |= kernels::cuda::kSamplerFilters;
  }
  if (!params.logit_bias.empty() || !params.held_ids.empty() || params.has_penalties()) {
    features |= kernels::cuda::kSamplerAdjustments;
  }
  if (params.logprobs) features |= kernels::cuda::kSamplerLogprobs;
  return features;
}

}  // namespace

void SlotTable::Reset() { std::fill(slots_.begin(), slots_.end(), Entry{}); }

absl::Status SlotTable::Begin(const SequenceStart& start) {
  if (start.slot >= slots_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", start.slot, " of ", slots_.size()));
  }
  const SamplingParams& params = start.sampling;
  Entry& entry = slots_[start.slot];
  entry.active = true;
  entry.features = FeaturesOf(params);
  SamplingRow& row = entry.row;
  row = SamplingRow{};
  row.seed = params.seed;
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.min_p = params.min_p;
  row.typical_p = params.typical_p;
  row.repetition_penalty = params.repetition_penalty;
  row.presence_penalty = params.presence_penalty;
  row.mask_penalty = params.mask_penalty;
  row.frequency_penalty = params.frequency_penalty;
  entry.held_biases = static_cast<uint32_t>(params.held_ids.size());
  entry.held_until = uint64_t{start.prompt_len} + params.min_tokens;
  row.bias_begin = start.slot * kSlotBiasesMax;
  row.bias_count = entry.held_biases + static_cast<uint32_t>(params.logit_bias.size());
  row.slot = start.slot;
  row.logprobs = params.logprobs ? 1 : 0;
  row.top_logprobs = params.logprobs ? params.top_logprobs : 0;
  return absl::OkStatus();
}

void SlotTable::Drop(Slot slot) {
  if (slot < slots_.size()) slots_[slot] = Entry{};
}

SamplingRow SlotTable::Row(Slot slot, Position position) const {
  WEFT_CHECK(Holds(slot));
  const Entry& entry = slots_[slot];
  SamplingRow row = entry.row;
  row.position = position;
  if (position >= entry.held_until) {
    row.bias_begin += entry.held_biases;
    row.bias_count -= entry.held_biases;
  }
  return row;
}

}  // namespace weft::shard
