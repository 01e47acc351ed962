// Signals of a conversation in a terminal: Ctrl-C asks the answer that runs to stop (stop.h) and is
// nothing beside one; SIGTERM and SIGHUP end the process, and leave the terminal as it was. Created
// by the main thread of `weft chat` before any other thread; a thread of its own waits for the
// signals, nothing runs in a signal handler.

#pragma once

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "common/shutdown.h"
#include "common/thread.h"
#include "deploy/launcher/chat/stop.h"
#include "deploy/launcher/chat/terminal.h"

namespace weft::launcher {

class Interrupt {
 public:
  // Both outlive it. `terminal` null = its modes were not changed.
  static absl::StatusOr<std::unique_ptr<Interrupt>> Create(const TerminalMode* terminal,
                                                           Stop& stop);
  ~Interrupt();

  // From here on there is a prompt to come back to.
  void Converse() { conversing_ = true; }

 private:
  Interrupt(ShutdownSignals signals, const TerminalMode* terminal, Stop& stop);
  void Run();

  ShutdownSignals signals_;
  const TerminalMode* const terminal_;
  Stop& stop_;
  std::atomic<bool> conversing_{false};
  std::atomic<bool> end_{false};
  Thread thread_;
};

}  // namespace weft::launcher
