// Ctrl-C in a conversation: while an answer runs it cancels that answer; between answers it ends
// the process, as does SIGTERM or SIGHUP at any time. Created by the main thread of `weft chat`
// before any other thread; a thread of its own waits for the signals, nothing runs in a signal
// handler.

#pragma once

#include <atomic>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/shutdown.h"
#include "common/thread.h"
#include "grpcpp/client_context.h"

namespace weft::launcher {

class Interrupt {
 public:
  static absl::StatusOr<std::unique_ptr<Interrupt>> Create();
  ~Interrupt();

  // From here to End(), SIGINT cancels `call`.
  void Begin(grpc::ClientContext* call) ABSL_LOCKS_EXCLUDED(mutex_);
  void End() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Interrupt(ShutdownSignals signals);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  ShutdownSignals signals_;
  std::atomic<bool> stop_{false};
  absl::Mutex mutex_;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Thread thread_;
};

}  // namespace weft::launcher
