// Calls that were answered without work, refusals most of all, and whose clients have not taken the
// answer yet. They hold memory and nothing else bounds them: a client that does not read keeps as
// many as it has streams. When there are too many in all, each connection has an equal share, and
// one that has used it up must take answers before its calls are heard again. So a client that
// reads is heard however many others do not. Owned by the call watch. Thread-safe.

#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace weft::router {

class UntakenAnswers {
 public:
  // In all; a connection without any may always have one more.
  explicit UntakenAnswers(size_t answers_max) : answers_max_(answers_max) {}

  void Add(const void* connection) {
    absl::MutexLock lock(&mutex_);
    ++by_connection_[connection];
    ++answers_;
  }
  // Of one that was added.
  void Remove(const void* connection) {
    absl::MutexLock lock(&mutex_);
    const auto found = by_connection_.find(connection);
    if (--found->second == 0) by_connection_.erase(found);
    --answers_;
  }
  // Whether the next call of this connection may be heard.
  bool MayCall(const void* connection) const {
    absl::MutexLock lock(&mutex_);
    if (answers_ < answers_max_) return true;
    const auto found = by_connection_.find(connection);
    if (found == by_connection_.end()) return true;
    return found->second < std::max<size_t>(1, answers_max_ / by_connection_.size());
  }

 private:
  const size_t answers_max_;
  mutable absl::Mutex mutex_;
  size_t answers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<const void*, size_t> by_connection_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::router
