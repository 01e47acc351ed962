// Counts requests that end without an answer, each once: by whoever writes its last word, who is
// text in before there are ids, the engine loop before there is a stream, and text out after that.
// Thread-safe; never blocks and never ends a request itself.

#pragma once

#include "absl/status/status.h"
#include "router/answer.h"
#include "router/engine/stages.h"
#include "router/observe/probe.h"

namespace weft::router {

// Which limit a RESOURCE_EXHAUSTED of admission speaks of.
RejectReason RejectReasonOf(const absl::Status& overloaded);

// What requests end with, and are refused with, when the server stops.
absl::Status ServerStopping();

// The model's numbers for the request are none.
absl::Status OutputNotFinite();

// The request ends with `why`, which is not OK, in `phase`.
void CountUnfinished(const Answer& answer, CancelPhase phase, const absl::Status& why,
                     Probe* probe);

}  // namespace weft::router
