#include "common/executor.h"

#include <utility>

#include "common/thread.h"

namespace weft {
namespace {

class LoopThread : public RunningLoop {
 public:
  LoopThread(const std::string& name, Executor::Turn turn, int nice)
      : thread_(
            name,
            [turn = std::move(turn)]() mutable {
              while (turn(/*may_wait=*/true) != LoopState::kEnded) {
              }
            },
            nice) {}

  void Wake() override {}
  void Join() override { thread_.Join(); }

 private:
  Thread thread_;
};

class ThreadPerLoop : public Executor {
 public:
  std::unique_ptr<RunningLoop> Start(const std::string& name, Turn turn, int nice) override {
    return std::make_unique<LoopThread>(name, std::move(turn), nice);
  }
};

}  // namespace

Executor& ThreadExecutor() {
  static ThreadPerLoop* const executor = new ThreadPerLoop;
  return *executor;
}

}  // namespace weft
