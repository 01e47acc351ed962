// Who runs the loops of a process: in production a thread for each (ThreadExecutor), in a
// simulation one thread that gives them turns in an order of its own (invariant engine.sim). A loop
// is a function that does what there is to do and says how it stands; it is owned by whoever
// started it, who ends it by the loop's own means (a closed queue, an event) and then joins it. An
// executor never ends a loop and never looks into it.

#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

namespace weft {

// What a turn of a loop says.
enum class LoopState {
  // There may be more to do at once.
  kWorked,
  // Nothing is left to do until somebody calls Wake.
  kIdle,
  // No turn follows.
  kEnded,
};

class RunningLoop {
 public:
  // Joins.
  virtual ~RunningLoop() = default;
  // There is something to do. Any thread; whoever calls it has put the work down before.
  virtual void Wake() = 0;
  // Waits until the loop has ended. Idempotent.
  virtual void Join() = 0;
};

class Executor {
 public:
  // With `may_wait` a turn may block until there is something to do, and kIdle is never needed;
  // without it must return at once.
  using Turn = absl::AnyInvocable<LoopState(bool may_wait)>;

  virtual ~Executor() = default;
  // Gives `turn` its turns until it has ended. `name` and `nice` as in Thread.
  virtual std::unique_ptr<RunningLoop> Start(const std::string& name, Turn turn, int nice) = 0;
};

// A thread for each loop; its turns may wait, so that Wake costs nothing. One instance, never
// destroyed.
Executor& ThreadExecutor();

}  // namespace weft
