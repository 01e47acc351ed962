// Whether a state that came from outside is one that a scheduler can be in. The scheduler checks
// what must be true of its own state with WEFT_CHECK; a state from a file must not get that far. So
// what invariants.cc says of a live scheduler is said here of plain data, as a Status. Pure; what
// it allocates is bounded by the size of the state.

#pragma once

#include "absl/status/status.h"
#include "router/scheduler/events.h"
#include "router/scheduler/kv_groups.h"
#include "router/scheduler/scheduler_state.h"

namespace weft::router {

// INVALID_ARGUMENT says what does not fit. `groups` are those of `config`, whose label_ids is set.
// A scheduler that goes on from a state that passed keeps its invariants and fails no check.
absl::Status CheckState(const SchedulerConfig& config, const KvGroups& groups,
                        const SchedulerState& state);

}  // namespace weft::router
