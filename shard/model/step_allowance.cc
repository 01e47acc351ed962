#include "shard/model/step_allowance.h"

#include <algorithm>

#include "common/limits.h"

namespace weft::shard {
namespace {

// Attention over a long context does far fewer operations a second than the products that the
// warm-up measures; clocks fall, and neighbours take their share.
constexpr double kSlack = 16;
// Reads of weights and KV cache, which the work does not show, and work between ranks.
constexpr int64_t kAlwaysUs = 500'000;
// A step of the warm-up. An epoch that ends there does not wait much longer: a rank that died in
// the warm-up would hold up the next epoch.
constexpr int64_t kUnlearnedUs = 5'000'000;

}  // namespace

StepAllowance::StepAllowance(const DecoderSpec& spec, uint32_t world)
    : work_of_token_(2.0 * static_cast<double>(spec.parameters()) / world),
      work_of_pair_(4.0 * spec.layers * spec.heads * spec.head_dim / world) {}

double StepAllowance::Work(const StepBatch& batch) const {
  double work = 0;
  for (const StepSequence& sequence : batch.sequences) {
    const double tokens = sequence.token_count;
    work += tokens * work_of_token_ + tokens * (sequence.start + tokens / 2) * work_of_pair_;
  }
  return work;
}

void StepAllowance::Learn(const StepBatch& batch, int64_t device_us) {
  const double work = Work(batch);
  if (work > 0) us_of_work_ = std::max(us_of_work_, static_cast<double>(device_us) / work);
}

int64_t StepAllowance::AllowedUs(const StepBatch& batch) const {
  if (us_of_work_ == 0) return kUnlearnedUs;
  const double us = kAlwaysUs + kSlack * us_of_work_ * Work(batch);
  return static_cast<int64_t>(std::min(us, static_cast<double>(kStepAllowedUsMax)));
}

}  // namespace weft::shard
