// Tenants that load one scheduler, in simulated time: each keeps a backlog or comes at random. A
// device of a stated cost answers the steps, two in flight. For questions of fairness and waiting;
// whether the plans are right is asked by World. One thread, one seed.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "router/scheduler/scheduler.h"

namespace weft::router {

// How one tenant loads the scheduler.
struct Load {
  TenantIndex tenant = 0;
  double weight = 1;
  int32_t priority = 0;
  // It keeps so many sequences waiting; 0: it comes at random, `interval_us` apart on average.
  uint32_t backlog = 0;
  int64_t interval_us = 0;
  uint32_t prompt_min = 50;
  uint32_t prompt_max = 400;
  uint32_t output_min = 20;
  uint32_t output_max = 200;
};

// What became of it.
struct LoadReport {
  // Prompt tokens computed for the first time, and tokens generated.
  uint64_t tokens = 0;
  uint64_t arrived = 0;
  uint64_t let_in = 0;
  // From arrival to the plan with the first chunk; of those that were let in.
  double mean_queue_us = 0;
  int64_t max_queue_us = 0;
};

struct StepCost {
  int64_t step_us = 10000;
  int64_t row_us = 10;
  int64_t prompt_token_us = 4;
};

class Traffic {
 public:
  Traffic(const SchedulerConfig& config, uint32_t kv_blocks, const StepCost& cost,
          std::vector<Load> loads, uint64_t seed);

  // Until `until_us` of simulated time.
  void Run(int64_t until_us);

  // One sequence more, of the shape of `load`, with another priority. Returns its id.
  SequenceId ArriveNow(size_t load, int32_t priority);
  // The order in which sequences were let in; ids grow with arrival.
  const std::vector<SequenceId>& let_in_order() const { return let_in_order_; }

  const LoadReport& report(size_t load) const { return reports_[load]; }
  SchedulerStats Stats() const { return scheduler_.Stats(); }
  int64_t now_us() const { return now_us_; }

 private:
  struct Request {
    size_t load;
    int64_t arrival_us;
    // Prompt tokens computed so far.
    uint32_t reached = 0;
    bool let_in = false;
  };
  struct Flight {
    StepPlan plan;
    int64_t done_us;
  };

  uint32_t Between(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random_() % (high - low + 1));
  }
  void FillBacklogs();
  int64_t NextArrivalUs() const;
  void PlanSteps();
  void Answer();

  Scheduler scheduler_;
  const StepCost cost_;
  const std::vector<Load> loads_;
  std::vector<LoadReport> reports_;
  // Waiting sequences, and when the next one comes, of each load.
  std::vector<uint32_t> waiting_;
  std::vector<int64_t> next_us_;
  std::mt19937_64 random_;
  int64_t now_us_ = 0;
  SequenceId last_id_ = 0;
  std::map<SequenceId, Request> requests_;
  std::vector<SequenceId> let_in_order_;
  std::deque<Flight> in_flight_;
};

}  // namespace weft::router
