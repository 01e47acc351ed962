#include "deploy/launcher/interrupt.h"

#include <signal.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "common/status.h"

namespace weft::launcher {
namespace {

// Ends the process by the signal itself, so that a shell sees what happened.
void DieBy(int number) {
  std::fputs("\n", stdout);
  std::fflush(stdout);
  signal(number, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, number);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  raise(number);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Create() {
  WEFT_ASSIGN_OR_RETURN(ShutdownSignals signals, ShutdownSignals::Create(Hangup::kStops));
  return std::unique_ptr<Interrupt>(new Interrupt(std::move(signals)));
}

Interrupt::Interrupt(ShutdownSignals signals)
    : signals_(std::move(signals)), thread_("interrupt", [this] { Run(); }) {}

Interrupt::~Interrupt() {
  stop_ = true;
  thread_.Join();
}

void Interrupt::Begin(grpc::ClientContext* call) {
  absl::MutexLock lock(&mutex_);
  call_ = call;
}

void Interrupt::End() {
  absl::MutexLock lock(&mutex_);
  call_ = nullptr;
}

void Interrupt::Run() {
  while (!stop_) {
    const std::optional<int> number = signals_.Wait(absl::Milliseconds(100));
    if (!number) continue;
    absl::MutexLock lock(&mutex_);
    if (*number == SIGINT && call_ != nullptr) {
      call_->TryCancel();
    } else {
      DieBy(*number);
    }
  }
}

}  // namespace weft::launcher
