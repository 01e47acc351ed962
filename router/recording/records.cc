// Plans and states as records.

#include "router/recording/records.h"

#include "router/recording/digest.h"
#include "router/recording/state_layout.h"

namespace weft::router::recording {

PlanRecord RecordOf(const StepPlan* plan) {
  PlanRecord record;
  if (plan == nullptr) return record;
  record.step = plan->step;
  record.rows = static_cast<uint32_t>(plan->decode_slots.size());
  record.chunks = static_cast<uint32_t>(plan->chunks.size());
  for (const PlannedChunk& chunk : plan->chunks) record.chunk_tokens += chunk.count;
  record.drops = static_cast<uint32_t>(plan->drops.size());
  record.blocks = static_cast<uint32_t>(plan->block_ids.size());
  record.predicted_us = plan->predicted_us;
  record.digest = DigestOf(*plan);
  return record;
}

void EncodeState(const SchedulerState& state, std::string* out) {
  Encoder encoder(out);
  CodeState(encoder, state);
}

void DecodeState(Decoder& decoder, SchedulerState* state) {
  CodeState(decoder, *state);
  for (const SequenceState& s : state->sequences) {
    if (s.phase > Phase::kDecoding) decoder.Fail();
  }
}

}  // namespace weft::router::recording
