// The engine loop, as text in and cancelling doors see it. Thread-safe; no call blocks.

#pragma once

#include <memory>

#include "common/ids.h"
#include "router/engine/stages.h"

namespace weft::router {

class Inbox {
 public:
  virtual ~Inbox() = default;
  // False when the engine loop has ended; the request is then untouched.
  virtual bool Arrive(std::unique_ptr<PreparedRequest>&& request) = 0;
  // `sequence` is not wanted any more, for the cause in its Answer. Unknown ones are ignored.
  virtual void CancelSequence(SequenceId sequence) = 0;
};

}  // namespace weft::router
