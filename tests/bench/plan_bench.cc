// Time of Scheduler::Plan() at 256 running and 10,000 waiting sequences of 1,000 tenants: the
// budget is 20 us. Prints p50 and p99 of Plan(), OnStepDone() and of a step with an arrival, an end
// and chunks mixed in. `weft_plan_bench FILE` records it all as --record FILE does.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/recording/recorder.h"
#include "router/scheduler/scheduler.h"

namespace weft::router {
namespace {

constexpr uint32_t kRunning = 256;
constexpr uint32_t kWaiting = 10000;
constexpr uint32_t kTenants = 1000;
constexpr int kSteps = 20000;

double NowUs() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Print(const char* what, std::vector<double>* us) {
  std::sort(us->begin(), us->end());
  const auto at = [&](double share) { return (*us)[static_cast<size_t>(share * us->size())]; };
  std::printf("%-44s n %6zu  p50 %6.1f us  p99 %6.1f us  max %7.1f us\n", what, us->size(), at(0.5),
              at(0.99), us->back());
}

struct Load {
  const char* name;
  // Outputs: long ones leave the batch alone, short ones end and admit in most steps.
  uint32_t new_tokens_min;
  uint32_t new_tokens_max;
  // By KV group; 0 sees the whole context.
  std::vector<uint32_t> kv_windows = {0};
  uint32_t block_tokens = kKvBlockTokensCpu;
};

void Run(const Load& load, const char* record) {
  SchedulerConfig config;
  config.running_max = kRunning;
  config.step_tokens_max = 2048;
  config.context_tokens_max = 8192;
  config.waiting_max = kWaiting;
  config.inter_token_target_us = 20000;
  config.eos_ids = {0};
  config.kv_windows = load.kv_windows;
  config.block_tokens = load.block_tokens;
  std::unique_ptr<Recorder> recorder;
  Scheduler scheduler(config);
  if (record != nullptr) {
    recording::RecordOptions options;
    options.path = record;
    // A recording for each load: names differ in their lengths.
    recorder = Recorder::Create(options, std::strlen(load.name)).value();
    recorder->Begin(config, &scheduler);
  }
  const GroupInfo::Cost costs[] = {{1, 0, 100, 5000}, {0, 64, 64, 6000}, {0, 512, 512, 20000}};
  GroupInfo group;
  group.epoch = 1;
  group.kv_blocks = 40000;
  group.costs = costs;
  std::vector<Ended> ended;
  scheduler.OnGroupFormed(group, 0, &ended);

  uint64_t random = 1;
  const auto next = [&](uint64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % below;
  };
  SequenceId id = 0;
  int64_t now_us = 0;
  std::vector<double> arrival_us;
  const auto arrive = [&] {
    std::vector<TokenId> ids;
    // A system prompt of 200 shared tokens, then 50 .. 550 of its own.
    for (TokenId i = 0; i < 200; ++i) ids.push_back(i + 1);
    for (uint64_t i = 50 + next(500); i > 0; --i) ids.push_back(1 + next(40000));
    Arrival arrival;
    arrival.id = ++id;
    arrival.prompt = scheduler.prefix_hasher().Hash(std::move(ids), 0);
    arrival.tenant = next(kTenants);
    arrival.tenant_weight = 1 + arrival.tenant % 4;
    arrival.priority = static_cast<int32_t>(next(5));
    arrival.max_new_tokens =
        load.new_tokens_min + next(load.new_tokens_max - load.new_tokens_min + 1);
    const double start = NowUs();
    const bool taken = scheduler.OnArrival(std::move(arrival), ++now_us).ok();
    arrival_us.push_back(NowUs() - start);
    if (!taken) std::abort();
  };
  for (uint32_t i = 0; i < kRunning + kWaiting; ++i) arrive();

  std::vector<double> plan_us, decode_us, done_us;
  std::deque<StepPlan> in_flight;
  std::vector<SampledRow> rows;
  std::vector<Emitted> emitted;
  uint64_t steps = 0;
  uint64_t waiting = 0;
  while (plan_us.size() < kSteps) {
    while (in_flight.size() < kStepsInFlightMax) {
      const double start = NowUs();
      const StepPlan* const plan = scheduler.Plan(++now_us);
      const double us = NowUs() - start;
      if (plan == nullptr) break;
      in_flight.push_back(*plan);
      // Not before the batch is full.
      if (scheduler.Stats().running == kRunning || steps > 2000) {
        (plan->kind == StepKind::kDecode ? decode_us : plan_us).push_back(us);
        waiting = scheduler.Stats().waiting;
      }
      if (decode_us.size() == kSteps) break;
    }
    if (decode_us.size() == kSteps) break;
    const StepPlan& plan = in_flight.front();
    rows.clear();
    for (const Slot slot : plan.decode_slots) {
      rows.push_back({slot, static_cast<TokenId>(1 + next(40000))});
    }
    for (const PlannedChunk& chunk : plan.chunks) {
      if (chunk.last) rows.push_back({chunk.slot, static_cast<TokenId>(1 + next(40000))});
    }
    emitted.clear();
    ended.clear();
    const uint32_t device_us = 5000 + 20 * rows.size();
    const double start = NowUs();
    scheduler.OnStepDone(plan.step, rows, {device_us}, ++now_us, &emitted, &ended);
    done_us.push_back(NowUs() - start);
    in_flight.pop_front();
    // The queue stays full.
    for (size_t i = 0; i < ended.size(); ++i) arrive();
    ++steps;
  }
  std::printf("%s: %u running, %llu waiting, %u tenants\n", load.name, scheduler.Stats().running,
              static_cast<unsigned long long>(waiting), scheduler.Stats().tenants);
  if (!decode_us.empty()) Print("  Plan(), decode rows only", &decode_us);
  if (!plan_us.empty()) Print("  Plan(), with chunks", &plan_us);
  Print("  OnStepDone()", &done_us);
  Print("  OnArrival(), hashed elsewhere", &arrival_us);
  std::vector<double> save_us;
  while (save_us.size() < 50) {
    SchedulerState state;
    const double start = NowUs();
    scheduler.Save(&state);
    save_us.push_back(NowUs() - start);
  }
  Print("  Save()", &save_us);
  if (recorder == nullptr) return;
  if (recorder->ended()) std::abort();
  recorder->Finish();
}

}  // namespace
}  // namespace weft::router

int main(int argc, char** argv) {
  const char* const record = argc > 1 ? argv[1] : nullptr;
  weft::router::Run({"long outputs", 2000, 4000}, record);
  weft::router::Run({"short outputs", 20, 200}, record);
  // Groups as of a Gemma 3, with a GPU's blocks: one in six sees the whole context.
  const std::vector<uint32_t> windows = {1024, 1024, 1024, 1024, 1024, 0};
  weft::router::Run({"long outputs, six KV groups", 2000, 4000, windows, weft::kKvBlockTokensCuda},
                    record);
  weft::router::Run({"short outputs, six KV groups", 20, 200, windows, weft::kKvBlockTokensCuda},
                    record);
  return 0;
}
