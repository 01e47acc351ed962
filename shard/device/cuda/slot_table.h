// What the host remembers of the sequence in each slot for a CUDA shard: its sampling parameters.
// (Its last token, token counts and logit biases are on the device.) Rebuilt from the router's log
// when a sequence is prefilled again (invariant state.log). Owned by CudaOps, device thread only.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/limits.h"
#include "kernels/cuda/sampling/sampler.h"
#include "shard/step_batch.h"

namespace weft::shard {

// Biases that a slot has room for on the device: those of the ids that are held back at first, then
// the request's own.
inline constexpr uint32_t kSlotBiasesMax = kHeldIdsMax + kLogitBiasMax;

class SlotTable {
 public:
  explicit SlotTable(uint32_t running_max) : slots_(running_max) {}

  void Reset();
  // INVALID_ARGUMENT for a slot out of range.
  absl::Status Begin(const SequenceStart& start);
  void Drop(Slot slot);
  bool Holds(Slot slot) const { return slot < slots_.size() && slots_[slot].active; }

  // The kernel's parameters for the slot's next token, to be sampled at `position`. REQUIRES:
  // Holds(slot).
  kernels::cuda::SamplingRow Row(Slot slot, Position position) const;
  // SamplerFeature bits it needs.
  uint32_t Features(Slot slot) const { return slots_[slot].features; }

 private:
  struct Entry {
    bool active = false;
    uint32_t features = 0;
    // position is set for each step.
    kernels::cuda::SamplingRow row;
    // The first biases of the row, which count while the token is below this position.
    uint32_t held_biases = 0;
    uint64_t held_until = 0;
  };
  std::vector<Entry> slots_;
};

}  // namespace weft::shard
