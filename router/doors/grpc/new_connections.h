// Which connection a call is on whose connection is not known yet. gRPC says of a call that comes
// by which way its connection was handed over, and not whose it is; so each way is given to one
// connection at a time until that has made its first call, as long as there are ways enough. Owned
// by the connection gate. Thread-safe. It never ends a connection.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/grpc/connection.h"

namespace weft::router {

class NewConnections {
 public:
  explicit NewConnections(size_t ways) : waiting_(ways) {}

  // The way that the connection is to take: of those on which fewest wait for their first call, the
  // one that was taken longest ago. Calls of connections that have ended may still come by it.
  size_t Enter(const std::shared_ptr<GrpcConnection>& connection) {
    absl::MutexLock lock(&mutex_);
    size_t best = last_;
    for (size_t i = 1; i <= waiting_.size(); ++i) {
      const size_t way = (last_ + i) % waiting_.size();
      Prune(&waiting_[way]);
      if (i == 1 || waiting_[way].size() < waiting_[best].size()) best = way;
      if (waiting_[best].empty()) break;
    }
    last_ = best;
    waiting_[best].push_back(connection);
    return best;
  }

  // A connection that is not known has made a call, and came by `way`. Null where several may have:
  // asked again at the next call, fewer are left.
  std::shared_ptr<GrpcConnection> Leave(size_t way) {
    absl::MutexLock lock(&mutex_);
    if (way >= waiting_.size()) return nullptr;
    Waiting& waiting = waiting_[way];
    Prune(&waiting);
    std::shared_ptr<GrpcConnection> found;
    for (const std::shared_ptr<GrpcConnection>& one : waiting) {
      if (waiting.size() > 1 && one->ReceivedBytes() < kFirstCallBytesMin) continue;
      if (found != nullptr) return nullptr;
      found = one;
    }
    if (found != nullptr) waiting.erase(std::find(waiting.begin(), waiting.end(), found));
    return found;
  }

 private:
  using Waiting = std::vector<std::shared_ptr<GrpcConnection>>;
  // The client's preface, with empty SETTINGS, and the frame of a call.
  static constexpr uint64_t kFirstCallBytesMin = 24 + 9 + 9;

  // As many are left as the gate lets be without a call.
  static void Prune(Waiting* waiting) {
    waiting->erase(std::remove_if(waiting->begin(), waiting->end(),
                                  [](const std::shared_ptr<GrpcConnection>& one) {
                                    return one->ended() || one->closed() || one->identified();
                                  }),
                   waiting->end());
  }

  absl::Mutex mutex_;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::router
