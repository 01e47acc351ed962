// What each tenant, or each address where nobody has a key, holds of the budget of all bodies while
// its bodies are on their way: half at most, so that one who sends many at a trickle leaves room
// for the others. Small bodies are not counted, and one that is its owner's only one is never
// refused here. Thread-safe.

#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/http/body_budget.h"

namespace weft::router {

class BodyShares {
 public:
  explicit BodyShares(size_t budget_bytes) : bytes_max_(budget_bytes / 2) {}

  // A body of `owner` that holds `held` bytes wants `bytes` in all. False: that is more than its
  // owner's share, nothing was taken.
  bool Take(const std::string& owner, size_t held, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    size_t& used = used_[owner];
    const size_t others = used - held;
    if (others > 0 && others + bytes > bytes_max_) return false;
    used = others + bytes;
    return true;
  }
  void Give(const std::string& owner, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto found = used_.find(owner);
    found->second -= bytes;
    if (found->second == 0) used_.erase(found);
  }

 private:
  const size_t bytes_max_;
  absl::Mutex mutex_;
  // Of those who hold something.
  absl::flat_hash_map<std::string, size_t> used_ ABSL_GUARDED_BY(mutex_);
};

// What one body holds of its owner's share. Without an owner it is not counted.
class BodyShare {
 public:
  BodyShare() = default;
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  ~BodyShare() { Release(); }

  // `shares` must outlive this.
  void Begin(BodyShares* shares, std::string owner) {
    Release();
    shares_ = shares;
    owner_ = std::move(owner);
  }
  bool GrowTo(size_t bytes) {
    if (shares_ == nullptr || bytes <= BodyBudget::kSmallBodyBytes || bytes <= bytes_) return true;
    if (!shares_->Take(owner_, bytes_, bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  void Release() {
    if (bytes_ > 0) shares_->Give(owner_, std::exchange(bytes_, 0));
    shares_ = nullptr;
  }

 private:
  BodyShares* shares_ = nullptr;
  std::string owner_;
  size_t bytes_ = 0;
};

}  // namespace weft::router
