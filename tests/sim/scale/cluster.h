// A trace's requests, sent to replicas by a policy, in virtual time: what became of them. The same
// options give the same result to the bit.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/scale/traces.h"

namespace weft::router::scale {

struct ScaleOptions {
  std::string shape = "azure-conv";
  std::string policy = "least_loaded";
  uint32_t replicas = 8;
  uint32_t requests = 20000;
  // Demand at its peak as a part of what the replicas could compute without any prefix hit.
  double load = 0.8;
  uint32_t tenants = 8;
  double first_share = 0.125;
  // SchedulerConfig's.
  uint32_t inter_token_target_us = 0;
  uint64_t seed = 1;
};

// What a request has to keep: first token within a second and 0.1 ms for each token of its prompt,
// and then a token each 25 ms on average.
inline constexpr int64_t kFirstTokenUs = 1'000'000;
inline constexpr int64_t kFirstTokenPerPromptTokenUs = 100;
inline constexpr double kPerTokenUs = 25'000;

struct TenantReport {
  uint64_t requests = 0;
  uint64_t refused = 0;
  uint64_t kept = 0;
  // Prompt and output tokens that were asked for, and those of requests that were served.
  uint64_t asked_tokens = 0;
  uint64_t served_tokens = 0;
};

struct ScaleReport {
  uint64_t requests = 0;
  uint64_t finished = 0;
  uint64_t refused = 0;
  // Finished within both limits above.
  uint64_t kept = 0;
  double virtual_s = 0;
  double first_token_p50_ms = 0;
  double first_token_p99_ms = 0;
  double per_token_p50_ms = 0;
  double per_token_p99_ms = 0;
  // Of prompt tokens: found in caches, and what one endless cache for all would have had.
  double hit_share = 0;
  double hit_share_best = 0;
  double busy_share = 0;
  uint64_t preemptions = 0;
  std::vector<TenantReport> tenants;
  // Of served tokens by asked ones, while the run lasted: the least by the largest, and Jain's.
  double least_by_largest = 0;
  double jain = 0;
  // Mean lengths of what came.
  double prompt_tokens = 0;
  double output_tokens = 0;
  uint64_t steps = 0;
  uint64_t rows = 0;
  // Arrivals, answers of steps and ends.
  uint64_t events = 0;
  // Of when each request began and ended to answer.
  uint64_t digest = 0;

  double kept_share() const {
    return requests == 0 ? 0 : static_cast<double>(kept) / static_cast<double>(requests);
  }
};

// Device microseconds of a request of this shape on a replica that is well filled, without hits.
double WorkUs(const TraceShape& shape);

// REQUIRES: known names, 1 .. kReplicasMax replicas. Every request ends, and what it held is back:
// else the process aborts.
ScaleReport RunScale(const ScaleOptions& options);

}  // namespace weft::router::scale
