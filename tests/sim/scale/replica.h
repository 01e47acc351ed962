// One replica: the router's admission and scheduler as they are, and a device that takes as long
// for a step as step_cost.h says, two steps in flight. In virtual time that its caller keeps; one
// thread.

#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "router/admission.h"
#include "router/scheduler/scheduler.h"
#include "tests/sim/scale/routing.h"
#include "tests/sim/scale/traces.h"

namespace weft::router::scale {

inline constexpr int64_t kNeverUs = std::numeric_limits<int64_t>::max();

// A request that has ended, or was turned away.
struct Outcome {
  uint32_t tenant = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t seen_tokens = 0;
  bool refused = false;
  int64_t arrival_us = 0;
  int64_t first_token_us = 0;
  int64_t end_us = 0;
};

class Replica {
 public:
  // `clock` is the caller's; it outlives this.
  Replica(const ManualClock* clock, absl::Span<const TenantRef> tenants,
          uint32_t inter_token_target_us);

  // A request comes; what is refused at once is appended.
  void Arrive(const TraceRequest& request, std::vector<Outcome>* outcomes);
  // When the oldest step in flight is answered; kNeverUs without one.
  int64_t NextUs() const { return in_flight_.empty() ? kNeverUs : in_flight_.front().done_us; }
  // Answers it, and plans what can be planned. Appends what ended.
  void Answer(std::vector<Outcome>* outcomes);

  ReplicaLoad Load() const;
  bool idle() const { return live_.empty(); }
  SchedulerStats Stats() const { return scheduler_.Stats(); }
  const Admission& admission() const { return admission_; }
  uint64_t steps() const { return steps_; }
  uint64_t rows() const { return rows_; }
  int64_t busy_us() const { return busy_us_; }

 private:
  struct Live {
    TraceRequest request;
    Admission::Permit permit;
    bool has_run = false;
    int64_t first_token_us = -1;
    uint32_t cached_tokens = 0;
  };
  struct SlotState {
    Live* live = nullptr;
    // Of the next token that is sampled here.
    uint32_t position = 0;
  };
  struct Flight {
    StepNumber step = 0;
    uint32_t device_us = 0;
    int64_t done_us = 0;
    std::vector<SampledRow> rows;
    // Whose first tokens are among them.
    std::vector<SequenceId> first;
  };

  void PlanSteps();
  Flight Launch(const StepPlan& plan);

  const ManualClock* const clock_;
  const absl::Span<const TenantRef> tenants_;
  Admission admission_;
  Scheduler scheduler_;
  SequenceId last_id_ = 0;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Live>> live_;
  std::vector<SlotState> slots_;
  uint64_t waiting_tokens_ = 0;
  uint64_t received_tokens_ = 0;
  std::deque<Flight> in_flight_;
  std::vector<Emitted> emitted_;
  std::vector<Ended> ended_;
  // Of steps that were answered.
  uint64_t steps_ = 0;
  uint64_t rows_ = 0;
  int64_t busy_us_ = 0;
};

// What a replica of this size is started with.
SchedulerConfig ReplicaConfig(uint32_t inter_token_target_us);

}  // namespace weft::router::scale
