// The threads that turn tokens into text: detokenise, match stop strings, write answers, and
// nothing else, so that no request on its way in can delay a token on its way out (invariant
// out.first). A stream stays on one worker, so its text is in order without a lock. Owned by the
// router's core; the engine loop pays one push per worker and step.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/executor.h"
#include "router/engine/stages.h"
#include "router/observe/probe.h"

namespace weft::router {

class TextOut : public StreamSink {
 public:
  // Starts `threads` workers; `batches_max` batches wait for each at most. `probe`, `clock` and
  // `executor`, which makes the threads, must outlive them.
  TextOut(uint32_t threads, size_t batches_max, Probe* probe, const Clock* clock,
          Executor* executor);
  ~TextOut() override;

  uint32_t workers() const override { return static_cast<uint32_t>(workers_.size()); }
  bool Post(uint32_t worker, StreamBatch&& batch) override;

  // Works off what is queued, then ends the threads. Idempotent.
  void Stop();

 private:
  class Worker;

  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace weft::router
