// What a step takes on the device of a simulated replica: Llama-3.1-8B in bfloat16 on one H200,
// from the steps measured in docs/PERFORMANCE.md. Pure.

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "router/scheduler/events.h"
#include "router/scheduler/step_plan.h"

namespace weft::router::scale {

// KV of the model that such a GPU holds beside its weights: 131,072 B a token.
inline constexpr uint32_t kPoolTokens = 768'000;

// The step alone: rows and prompt tokens as one flat batch, then what attention reads for decode
// rows (their contexts' sum) and computes for chunks (pairs of a query and a key).
double StepUs(uint32_t tokens, double decode_context, double chunk_pairs);

// Points of the same cost, as Warmup would have measured them.
absl::Span<const GroupInfo::Cost> WarmupCosts();

}  // namespace weft::router::scale
