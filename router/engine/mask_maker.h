// The threads that work out what constrained rows may sample, while the shards run the rows'
// forward. They are apart from those of text in, so that no request on its way in delays a token
// on its way out (invariant out.first). Owned by the router's core and shared by its engine loops;
// Make may be called by any of these and never blocks.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/bounded_queue.h"
#include "common/executor.h"
#include "common/ids.h"
#include "router/engine/constraint.h"

namespace weft::router {

// A row whose mask is wanted.
struct MaskJob {
  Slot slot = 0;
  SequenceId sequence = 0;
  std::shared_ptr<ConstrainedLog> log;
};

// Masks of some rows of one step.
struct MadeMasks {
  Epoch epoch = 0;
  StepNumber step = 0;
  std::vector<SequenceId> sequences;
  // Of all of them, serialised (mask_row.h); the row of one that failed is free.
  std::string rows;
  std::vector<std::pair<SequenceId, absl::Status>> failures;
};

class MaskMaker {
 public:
  // Called by a worker; must not block.
  using Done = std::function<void(MadeMasks made)>;

  // `threads` > 0; `executor`, which makes them, must outlive this.
  MaskMaker(uint32_t threads, Executor* executor);
  ~MaskMaker();

  // Has the masks of `jobs`, rows of one step, worked out; `done` hears of each job once, in one
  // part or several. After Stop of none.
  void Make(Epoch epoch, StepNumber step, uint32_t vocab_size, std::vector<MaskJob> jobs,
            const Done& done);
  // Drops what waits and ends the threads. Idempotent.
  void Stop();

 private:
  struct Work {
    uint32_t vocab_size = 0;
    std::vector<MaskJob> jobs;
    MadeMasks made;
    Done done;
  };
  struct Worker;
  static void Run(Work work, std::vector<uint32_t>* words);
  // There is no room for it: its rows' requests fail.
  static void Refuse(Work work);

  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace weft::router
