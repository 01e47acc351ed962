// Hands accepted connections to gRPC, on a thread of its own: gRPC reads what a connection has sent
// already on the thread that hands it over, and goes on for as long as more comes. A flood must not
// hold the gate's thread, which is the one to end it. Those that were ended while they waited are
// let go. Made and owned by the gate. It never ends a connection that it has handed over.

#pragma once

#include <unistd.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/thread.h"
#include "router/doors/grpc/connection.h"

namespace weft::router {

class HandOver {
 public:
  using Taker = absl::AnyInvocable<void(int listener_fd, int fd, size_t way)>;
  using WayOf = absl::AnyInvocable<size_t(const std::shared_ptr<GrpcConnection>& connection)>;
  struct Accepted {
    int listener_fd;
    int fd;  // to own
    std::shared_ptr<GrpcConnection> connection;
  };

  ~HandOver() { Stop(); }

  // `way_of` is asked just before the taker.
  void Start(Taker taker, WayOf way_of) {
    taker_ = std::move(taker);
    way_of_ = std::move(way_of);
    thread_ = Thread("grpc-handover", [this] { Run(); });
  }
  // As many wait as the gate lets in. Closes it after Stop.
  void Push(Accepted accepted) {
    absl::MutexLock lock(&mutex_);
    if (stopped_) {
      close(accepted.fd);
    } else {
      waiting_.push_back(std::move(accepted));
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
      std::vector<Accepted> taken;
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
      for (const Accepted& one : taken) {
        if (stopped || one.connection->ended()) {
          close(one.fd);
        } else {
          taker_(one.listener_fd, one.fd, way_of_(one.connection));
        }
      }
      if (stopped) return;
    }
  }

  Taker taker_;
  WayOf way_of_;
  absl::Mutex mutex_;
  std::vector<Accepted> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace weft::router
