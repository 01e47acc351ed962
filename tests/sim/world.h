// One world of the simulation: a scheduler, a mock shard, the requests and what must be true of
// them. Actions are the events of an engine loop; each one checks all it can see.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "router/scheduler/scheduler.h"
#include "tests/sim/mock_shard.h"
#include "tests/sim/simulation.h"

namespace weft::router {

class World {
 public:
  World(uint64_t seed, uint32_t requests, const SimulationOptions& options,
        SimulationReport* report);

  // Until every request has ended.
  void Run();

 private:
  struct Request {
    MockRequest mock;
    int32_t priority = 0;
    TenantIndex tenant = 0;
    int64_t turn_us = 0;
    uint32_t prompt_length = 0;
    uint32_t length_limit = 0;
    bool ignore_eos = false;
    std::vector<TokenId> log;
    // Rows of steps in flight, and how many of them sample.
    uint32_t rows_in_flight = 0;
    uint32_t samples_in_flight = 0;
    bool preempted = false;
    // Held a slot when the group was lost, and its log is not back on the shard.
    bool recovering = false;
    // Held a slot when the group was lost, and goes before all others.
    bool ran_when_lost = false;
    // Every step that writes this position loses the group; 0: none does.
    Position poison = 0;
    // Groups lost with a row of it in flight.
    uint32_t losses = 0;
  };
  struct Flight {
    StepPlan plan;
    std::vector<SampledRow> rows;
    // With each row's request: all rows, also those that do not sample.
    std::vector<SequenceId> ids;
    // Its answer never comes: the group is lost instead.
    bool poisoned = false;
  };

  uint64_t Random(uint64_t below) { return random_() % below; }
  bool Chance(uint64_t percent) { return Random(100) < percent; }

  void ChooseConfig();
  void ChooseWindows();
  void ChoosePool();
  void FormGroup();
  void LoseGroup();
  void Arrive();
  void Cancel();
  void Flush();
  void PlanStep();
  void AnswerStep();

  // world_checks.cc: what a plan, a result and an end must look like.
  void CheckPlan(const StepPlan& plan);
  void CheckRanks(const StepPlan& plan);
  // A suspect's step holds nobody else.
  void CheckTrial(const Flight& flight) const;
  void CheckBudget(const StepPlan& plan) const;
  void CheckAdmissions(const StepPlan& plan) const;
  void CheckEmitted(const std::vector<Emitted>& emitted, const std::vector<SampledRow>& rows);
  void CheckEnded(const std::vector<Ended>& ended);
  void CheckAfterEvent();
  void CheckAtEnd() const;
  void CheckVictims(const std::vector<SequenceId>& kept, const std::vector<SequenceId>& victims);
  // The turn of `a` comes before that of `b`.
  bool Outranks(SequenceId a, SequenceId b) const;

  std::mt19937_64 random_;
  uint32_t requests_left_;
  const bool check_invariants_;
  SimulationReport& report_;

  SchedulerConfig config_;
  uint32_t kv_blocks_ = 0;
  uint32_t length_max_ = 0;
  uint32_t live_max_ = 0;
  std::vector<std::vector<TokenId>> prefixes_;

  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<MockShard> shard_;
  bool formed_ = false;
  Epoch epoch_ = 0;
  StepNumber planned_ = 0;
  StepNumber answered_ = 0;
  std::map<SequenceId, Request> live_;
  SequenceId next_id_ = 1;
  // Sequences in the queue or running that must run alone, before the plan.
  uint32_t suspects_ = 0;
  // Of all who hold a slot, before the plan: what their tenants were served, and whether they were
  // just let in.
  struct Standing {
    double served;
    bool is_kept;
  };
  std::map<SequenceId, Standing> standing_;
  int64_t now_us_ = 0;
  uint32_t tenants_ = 1;
  std::deque<Flight> in_flight_;
};

}  // namespace weft::router
