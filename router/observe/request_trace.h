// What is noted of one request whose trace is exported: ids, times, and how it ended; never a
// prompt or an answer. Made where the request arrives, filled in by whoever owns the request at the
// time (it travels with the answer), and read by the tracer's thread once everybody has let go.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/request.h"

namespace weft::router {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// Who called us, by W3C Trace Context.
struct TraceParent {
  TraceId trace_id = {};
  SpanId span_id = {};
  bool sampled = false;
};

// `text` as it came; nothing when it is no traceparent that may be continued (all zeros, version
// ff, wrong form).
std::optional<TraceParent> ParseTraceparent(absl::string_view text);
// In hexadecimal, as logs and headers have it.
std::string TraceIdText(const TraceId& id);

struct RequestTrace {
  // A request that is preempted more often has the first of them.
  static constexpr size_t kPausesMax = 32;

  // The time of a sequence that lost its place on the shards until it was prefilled again. A
  // preempted one's beginning is not known: both times are its end.
  struct Pause {
    bool recovery = false;
    int64_t begin_us = 0;
    int64_t end_us = 0;
  };

  // -- Once a request is there
  TraceId trace_id = {};
  // Of the whole request; and of its caller's span, all zeros where there is none.
  SpanId span_id = {};
  SpanId parent_id = {};
  std::string request_id;
  std::string tenant;
  std::string model;
  bool chat = false;
  float temperature = 0.0f;
  float top_p = 1.0f;
  uint32_t top_k = 0;
  uint64_t seed = 0;
  std::optional<uint32_t> max_tokens;
  // The same moment by both clocks.
  int64_t arrival_us = 0;
  int64_t arrival_unix_us = 0;

  // -- By the engine loop; 0 = it did not come so far
  int64_t prepared_us = 0;
  int64_t planned_us = 0;
  int64_t first_token_us = 0;
  uint32_t cached_tokens = 0;
  std::vector<Pause> pauses;

  // -- Once it is over
  int64_t end_us = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  // OK = complete, for `reason`.
  absl::StatusCode code = absl::StatusCode::kOk;
  FinishReason reason = FinishReason::kLength;

  // The group of shards that held it is lost.
  void Lost(int64_t now_us) {
    if (prefilled_ && lost_us_ == 0) lost_us_ = now_us;
  }
  // It is prefilled from its beginning: for the first time, or again.
  void Prefilled(int64_t now_us) {
    if (prefilled_ && pauses.size() < kPausesMax) {
      pauses.push_back({lost_us_ > 0, lost_us_ > 0 ? lost_us_ : now_us, now_us});
    }
    prefilled_ = true;
    lost_us_ = 0;
  }

 private:
  bool prefilled_ = false;
  int64_t lost_us_ = 0;
};

}  // namespace weft::router
