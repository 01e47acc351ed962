#include "deploy/launcher/chat/interrupt.h"

#include <signal.h>

#include <optional>
#include <utility>

#include "common/status.h"

namespace weft::launcher {
namespace {

// Ends the process by the signal itself, so that a shell sees what happened.
void DieBy(int number, const TerminalMode* terminal) {
  // The answer may have been in the middle of a style.
  WriteOut(StandardOutputHasStyles() ? "\x1b[0m\n" : "\n");
  if (terminal != nullptr) terminal->Restore();
  signal(number, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, number);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  raise(number);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Create(const TerminalMode* terminal,
                                                             Stop& stop) {
  WEFT_ASSIGN_OR_RETURN(ShutdownSignals signals, ShutdownSignals::Create(Hangup::kStops));
  return std::unique_ptr<Interrupt>(new Interrupt(std::move(signals), terminal, stop));
}

Interrupt::Interrupt(ShutdownSignals signals, const TerminalMode* terminal, Stop& stop)
    : signals_(std::move(signals)),
      terminal_(terminal),
      stop_(stop),
      thread_("interrupt", [this] { Run(); }) {}

Interrupt::~Interrupt() {
  end_ = true;
  thread_.Join();
}

void Interrupt::Run() {
  while (!end_) {
    const std::optional<int> number = signals_.Wait(absl::Milliseconds(100));
    if (!number) continue;
    if (*number == SIGINT && conversing_) {
      stop_.Request();
    } else {
      DieBy(*number, terminal_);
    }
  }
}

}  // namespace weft::launcher
