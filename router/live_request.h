// One request from its acceptance to its terminal event, as the router's threads share it. Made by
// the intake; a text worker prepares it, the engine loop runs it, the same text worker delivers its
// events. Each field belongs to one of them at a time, and passes on through a queue; only `cancel`
// is touched by several.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "router/admission.h"
#include "router/request.h"
#include "router/text/detokenizer.h"
#include "router/text/stop_matcher.h"

namespace weft::router {

// Who ended a request before its time.
enum class EndCause : uint8_t {
  kNone,
  kClientGone,
  kAdmin,
  kDeadline,
  kSlowReader,
  // Its text worker found a stop string and has delivered the end already.
  kStopMatched,
};

// The terminal error of a request that was cancelled for `cause`.
absl::Status CancelStatus(EndCause cause);

// A request's way from tokens to text; the text worker's alone.
struct TextState {
  Detokenizer detokenizer;
  StopMatcher stop_matcher;
  // Text that goes in front of the first token's: the prompt, when it is to be echoed.
  std::string echo;
  // Events of the batch under way.
  std::vector<ResponseEvent> pending;
  bool started = false;
  // The terminal event is delivered or pending (invariant end.once).
  bool ended = false;
  uint32_t output_tokens = 0;
};

struct LiveRequest {
  // -- Fixed by the intake
  std::string id;
  SequenceId sequence = 0;
  uint32_t worker = 0;
  std::shared_ptr<ResponseSink> sink;
  uint64_t seed = 0;
  int64_t arrival_us = 0;
  // The prompt leaves it when it is tokenised.
  GenerateInput input;

  // -- Filled by the text worker, then the engine loop's
  // Copied into the scheduler's log, then empty.
  std::vector<TokenId> prompt;
  uint32_t prompt_tokens = 0;
  uint32_t max_new_tokens = 0;
  int64_t validation_us = 0;
  Admission::Permit permit;

  // -- Written by the engine loop once, before it sends the first token on
  int64_t planned_us = 0;
  int64_t first_token_us = 0;
  uint32_t cached_tokens = 0;

  // The first to set it decides; an EndCause.
  std::atomic<EndCause> cancel{EndCause::kNone};

  std::unique_ptr<TextState> text;

  // True for the first caller: it has to tell the engine loop.
  bool TryCancel(EndCause cause) {
    EndCause none = EndCause::kNone;
    return cancel.compare_exchange_strong(none, cause, std::memory_order_acq_rel);
  }
};

}  // namespace weft::router
