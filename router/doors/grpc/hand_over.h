// Hands accepted connections to gRPC, on a thread of its own: gRPC reads what a connection has sent
// already on the thread that hands it over, and goes on for as long as more comes. A flood must not
// hold the gate's thread, which is the one to end it. Made and owned by the gate. It never ends a
// connection that it has handed over.

#pragma once

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/thread.h"

namespace weft::router {

class HandOver {
 public:
  using Taker = absl::AnyInvocable<void(int listener_fd, int fd)>;

  ~HandOver() { Stop(); }

  void Start(Taker taker) {
    taker_ = std::move(taker);
    thread_ = Thread("grpc-handover", [this] { Run(); });
  }
  // `fd` to own; as many wait as the gate lets in. Closes it after Stop.
  void Push(int listener_fd, int fd) {
    absl::MutexLock lock(&mutex_);
    if (stopped_) {
      close(fd);
    } else {
      waiting_.emplace_back(listener_fd, fd);
    }
  }
  // While the gate's thread still runs. Idempotent.
  void Stop() {
    if (!thread_.joinable()) return;
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
    }
    thread_.Join();
  }

 private:
  void Run() {
    while (true) {
      std::vector<std::pair<int, int>> taken;
      bool stopped = false;
      {
        absl::MutexLock lock(&mutex_);
        const auto ready = [this] {
          mutex_.AssertHeld();
          return stopped_ || !waiting_.empty();
        };
        mutex_.Await(absl::Condition(&ready));
        taken.swap(waiting_);
        stopped = stopped_;
      }
      for (const auto& [listener_fd, fd] : taken) {
        if (stopped) {
          close(fd);
        } else {
          taker_(listener_fd, fd);
        }
      }
      if (stopped) return;
    }
  }

  Taker taker_;
  absl::Mutex mutex_;
  std::vector<std::pair<int, int>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace weft::router
