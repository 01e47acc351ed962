// What the supervisor does when a child has ended: the whole decision, without clock, process or
// socket. Pure; called on the launcher's main thread.
//
//   how it ended               before the server was ready         afterwards
//   kExitOk, kExitStartup      gives up: it would end so again      starts it again
//   kExitFatal, kExitCut       gives up                             starts it again
//   any other exit code        gives up                             starts it again
//   kExitStuck, a signal       starts it again, kMishapsMax times   starts it again
//
// Afterwards nothing is given up: streams and readiness depend on it, and what stood in the way (a
// file, a port, a device) may come back.

#pragma once

#include "absl/time/time.h"

namespace weft::launcher {

// So many lost devices or deaths by a signal of one child are mishaps of a start, as the death of
// another shard is; more are its state: a model that kills its reader would do so for ever.
inline constexpr int kMishapsMax = 3;

struct RestartHistory {
  // Lost devices and deaths by a signal before the server was ready.
  int mishaps = 0;
  // Wait before the next start when this one ends young, too.
  absl::Duration backoff = absl::ZeroDuration();
};

struct RestartTimes {
  // A child that ends before it has run this long is started again only after a back-off. Longer
  // than starting takes for a child that cannot start; one that has served is wanted back at once.
  absl::Duration young = absl::Seconds(2);
  absl::Duration backoff_first = absl::Milliseconds(100);
  absl::Duration backoff_max = absl::Seconds(5);
};

struct RestartDecision {
  // A restart cannot mend it.
  bool give_up = false;
  // Before the next start.
  absl::Duration wait = absl::ZeroDuration();
};

// `wait_status` as from waitpid; `ready`: the server has been ready once; `ran`: the child's life.
// Keeps the child's history.
RestartDecision DecideRestart(int wait_status, bool ready, absl::Duration ran,
                              const RestartTimes& times, RestartHistory* history);

}  // namespace weft::launcher
