// The last link of every door's chain: one line in the log for each request that ended, however it
// ended, also before it was complete. Never a prompt, an answer or a key. Called once per request,
// on the thread that saw its end; costs about 2 us and never waits (common/log.h): in a flood the
// log's bounded writer drops lines.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "router/answer.h"

namespace weft::router {

// What is known of a request at its end; what is not stays empty or 0.
struct AccessRecord {
  // weft's own name of the request, and its client's.
  std::string id;
  std::string correlation_id;
  // The client's trace context (W3C), as it came.
  std::string traceparent;
  // Of the trace that is exported of it; empty where none is.
  std::string trace_id;
  std::string tenant;
  // "ip:port".
  std::string client;
  // "http" or "grpc".
  absl::string_view door;
  // Of the route table, or the method: never what the client typed. "-" where there is none yet.
  absl::string_view route;
  // 200 ... or OK, INVALID_ARGUMENT ...
  std::string status;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  // Microseconds: reading and tokenising; from there to the first step; from the request to its
  // first token, and to its end.
  int64_t validation_us = 0;
  int64_t queue_us = 0;
  int64_t first_token_us = 0;
  int64_t total_us = 0;
  // How it ended: length, eos_token, stop_sequence; or why it did not, in the words of the metrics
  // (observe/outcomes.h); or "error".
  absl::string_view cause;
};

// Takes over what an answer knows: names, tenant, and with its end tokens, times and cause.
void DescribeAnswer(const Answer& answer, AccessRecord* record);

// `quiet` lines are of level debug.
void LogAccess(const AccessRecord& record, bool quiet = false);

// A trace context that may be logged and sent back: version-trace-parent-flags in hexadecimal.
bool IsTraceparent(absl::string_view text);

}  // namespace weft::router
