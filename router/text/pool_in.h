// The threads that read what clients sent: parse large bodies, render chat templates, tokenise.
// Two lanes, each with threads of its own, so that a short text never waits for a long one; those
// of the long lane also stand behind all others for the processor. Every job is under a permit
// (invariant pay.first), which bounds how many there are. Owned by the router's core; any thread
// may call Run, which never blocks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/bounded_queue.h"
#include "common/executor.h"

namespace weft::router {

class TextIn {
 public:
  using Job = absl::AnyInvocable<void()>;

  // So long a text, or what takes as long, goes to the long lane. Tokenising takes about 0.3 us a
  // byte: what is shorter holds a thread for 5 ms at most.
  static constexpr size_t kLongTextBytes = 16u << 10;

  // Starts `threads` for short texts and half as many, at least one, for long ones. `executor`,
  // which makes the threads, must outlive this.
  TextIn(uint32_t threads, Executor* executor);
  ~TextIn();

  // Runs `job` soon; `bytes` of text decide on the lane. False when the lane is full or the pool
  // was stopped; `job` is then untouched.
  bool Run(size_t bytes, Job&& job);

  // Works off what is queued, then ends the threads. Idempotent.
  void Stop();

 private:
  struct Lane {
    explicit Lane(size_t capacity) : queue(capacity) {}
    BoundedQueue<Job> queue;
    std::vector<std::unique_ptr<RunningLoop>> loops;
  };
  void Start(Lane* lane, const char* name, uint32_t threads, int nice, Executor* executor);

  Lane short_;
  Lane long_;
};

}  // namespace weft::router
