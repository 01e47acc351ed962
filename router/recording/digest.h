// Digests of what a scheduler decides: 64 bits over every field, equal on every machine, so that a
// recording need not hold the plans themselves. Not against attackers. Pure; any thread; about a
// nanosecond for each number in a plan.

#pragma once

#include <bit>
#include <cstdint>

#include "absl/types/span.h"
#include "router/scheduler/events.h"
#include "router/scheduler/step_plan.h"

namespace weft::router::recording {

class Digest {
 public:
  // A multiplication by an odd constant and a rotation for each number: every one of them changes
  // all later values.
  void Add(uint64_t number) {
    value_ = std::rotl((value_ ^ number) * uint64_t{0x9e3779b97f4a7c15}, 29);
  }
  template <typename T>
  void AddAll(const T& numbers) {
    Add(numbers.size());
    for (const auto number : numbers) Add(number);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0x243f6a8885a308d3;
};

inline uint64_t DigestOf(const StepPlan& plan) {
  Digest digest;
  digest.Add(plan.step);
  digest.Add(static_cast<uint64_t>(plan.kind));
  digest.AddAll(plan.drops);
  digest.Add(plan.blocks.size());
  for (const PlannedBlocks& blocks : plan.blocks) {
    digest.Add(uint64_t{blocks.slot} << 32 | blocks.group);
    digest.Add(uint64_t{blocks.leave_front} << 32 | blocks.begin);
    digest.Add(blocks.count);
  }
  digest.AddAll(plan.block_ids);
  digest.Add(plan.chunks.size());
  for (const PlannedChunk& chunk : plan.chunks) {
    digest.Add(chunk.id);
    digest.Add(uint64_t{chunk.slot} << 32 | chunk.start);
    digest.Add(uint64_t{chunk.count} << 2 | uint64_t{chunk.first} << 1 | uint64_t{chunk.last});
  }
  digest.Add(plan.with_decode);
  digest.AddAll(plan.skip_slots);
  digest.AddAll(plan.decode_slots);
  digest.Add(uint64_t{plan.predicted_us} << 32 | plan.target_us);
  return digest.value();
}

// Who ended and why. 0 for nobody.
inline uint64_t DigestOf(absl::Span<const Ended> ended) {
  if (ended.empty()) return 0;
  Digest digest;
  for (const Ended& end : ended) {
    digest.Add(end.id);
    digest.Add(static_cast<uint64_t>(end.reason));
  }
  return digest.value();
}

// The same, and who got a token in which row; tokens themselves do not count.
inline uint64_t DigestOf(absl::Span<const Emitted> emitted, absl::Span<const Ended> ended) {
  Digest digest;
  for (const Emitted& e : emitted) {
    digest.Add(e.id);
    digest.Add(e.row);
  }
  digest.Add(DigestOf(ended));
  return digest.value();
}

}  // namespace weft::router::recording
