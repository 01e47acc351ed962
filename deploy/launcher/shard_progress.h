// Polls the shards' Info while they load and says what a person wants to see: how far, how fast.
// One thread of its own, because the calls block; results are read by the launcher's main thread.
// Ends with its owner. Never touches a shard that serves.

#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/thread.h"

namespace weft::launcher {

class ShardProgress {
 public:
  // `sockets` in rank order.
  explicit ShardProgress(std::vector<std::string> sockets);
  ~ShardProgress();

  // For example "loading  shard-0 [#######...] 72 %  1.4 GB/s   shard-1 ready"; empty before the
  // first answer.
  std::string Line() const;

 private:
  void Run();

  const std::vector<std::string> sockets_;
  absl::Notification stop_;
  mutable absl::Mutex mutex_;
  std::string line_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace weft::launcher
