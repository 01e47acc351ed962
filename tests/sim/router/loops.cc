#include "tests/sim/router/loops.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/check.h"

namespace weft::router::sim {
namespace {

// The owner's word for its loop's end, which a joining owner waits for.
constexpr int64_t kJoinUsMax = 60'000'000;

}  // namespace

// The handle that the owner holds. `Body` lives on with the executor, because events in the queue
// point to it.
class SimExecutor::Loop : public Happening {
 public:
  Loop(std::string name, Turn turn, Draws draws, SimExecutor* executor)
      : name_(std::move(name)), turn_(std::move(turn)), draws_(draws), executor_(*executor) {}

  void Wake() { Schedule(executor_.time_->NowUs() + draws_.Below(executor_.delay_us_max_ + 1)); }
  void Schedule(int64_t at_us) {
    at_us = std::max(at_us, stalled_until_us_);
    if (ended_ || at_us >= due_us_) return;
    due_us_ = at_us;
    if (at_us < VirtualTime::kNever) {
      executor_.time_->At(at_us, this, 0, static_cast<uint64_t>(at_us));
    }
  }
  void OnTime(uint32_t, uint64_t at_us) override {
    if (ended_ || static_cast<int64_t>(at_us) != due_us_) return;  // of an earlier plan
    due_us_ = VirtualTime::kNever;
    if (executor_.time_->NowUs() < stalled_until_us_) return Schedule(stalled_until_us_);
    executor_.on_turn_();
    const LoopState state = turn_(/*may_wait=*/false);
    if (state == LoopState::kEnded) ended_ = true;
    if (state == LoopState::kWorked) Wake();
  }
  void Join() {
    const int64_t limit_us = executor_.time_->NowUs() + kJoinUsMax;
    Wake();
    while (!ended_) {
      WEFT_CHECK_MSG(executor_.time_->NowUs() < limit_us && executor_.time_->Next(),
                     "a loop of the router does not end");
    }
  }
  void Stall(int64_t until_us) { stalled_until_us_ = std::max(stalled_until_us_, until_us); }
  // Its owner is gone.
  void Retire() {
    ended_ = true;
    turn_ = nullptr;
  }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  Turn turn_;
  Draws draws_;
  SimExecutor& executor_;
  int64_t due_us_ = VirtualTime::kNever;
  int64_t stalled_until_us_ = 0;
  bool ended_ = false;
};

namespace {

// What the owner of a loop holds.
template <typename Loop>
class Handle : public RunningLoop {
 public:
  explicit Handle(Loop* loop) : loop_(loop) {}
  ~Handle() override {
    loop_->Join();
    loop_->Retire();
  }
  void Wake() override { loop_->Wake(); }
  void Join() override { loop_->Join(); }

 private:
  Loop* const loop_;
};

}  // namespace

class SimExecutor::EnginePoller : public Poller {
 public:
  // Of the loop that waits in a poller and is started as the `index`-th of those.
  EnginePoller(size_t index, SimExecutor* executor) : index_(index), executor_(*executor) {}

  // The simulation's shards have no sockets.
  void Add(PollTarget*) override { WEFT_CHECK_MSG(false, "a socket in the simulation"); }
  void Remove(PollTarget*) override {}
  void Wait(int64_t until_us) override {
    if (Loop* loop = engine()) loop->Schedule(until_us);
  }
  void Wake() override {
    if (Loop* loop = engine()) loop->Wake();
  }

 private:
  Loop* engine() {
    if (engine_ == nullptr) {
      size_t before = 0;
      for (Loop* loop : executor_.loops_) {
        const bool polls =
            absl::StartsWith(loop->name(), "engine") || absl::StartsWith(loop->name(), "dispatch");
        if (polls && before++ == index_) engine_ = loop;
      }
    }
    return engine_;
  }

  const size_t index_;
  SimExecutor& executor_;
  Loop* engine_ = nullptr;
};

SimExecutor::SimExecutor(uint64_t seed, int64_t delay_us_max, VirtualTime* time, OnTurn on_turn)
    : seed_(seed), delay_us_max_(delay_us_max), time_(time), on_turn_(std::move(on_turn)) {}

SimExecutor::~SimExecutor() {
  for (Loop* loop : loops_) delete loop;
}

std::unique_ptr<RunningLoop> SimExecutor::Start(const std::string& name, Turn turn, int) {
  Loop* const loop = new Loop(name, std::move(turn), Draws(seed_, loops_.size()), this);
  loops_.push_back(loop);
  loop->Wake();
  return std::make_unique<Handle<Loop>>(loop);
}

void SimExecutor::Stall(absl::string_view name, int64_t until_us) {
  for (Loop* loop : loops_) {
    if (absl::StartsWith(loop->name(), name)) loop->Stall(until_us);
  }
}

std::unique_ptr<Poller> SimExecutor::MakePoller() {
  return std::make_unique<EnginePoller>(pollers_++, this);
}

}  // namespace weft::router::sim
