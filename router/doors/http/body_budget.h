// One budget in bytes for the bodies of all connections: what has been read and not yet handed back
// by the handler of its request. A charge is held by a body while it grows and travels with the
// request; it comes back when the request is destroyed. The last quarter is kept for small bodies,
// so that a few large ones that dawdle do not lock out the many small ones. Thread-safe, lock-free.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace weft::router {

class BodyBudget {
 public:
  // A body of at most so many bytes may use the part that is kept.
  static constexpr size_t kSmallBodyBytes = 64u << 10;

  explicit BodyBudget(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Takes `bytes` more for a body that then holds `held` bytes. False: the budget is spent, nothing
  // was taken.
  bool Take(size_t bytes, size_t held) {
    const size_t limit = held <= kSmallBodyBytes ? bytes_max_ : bytes_max_ - bytes_max_ / 4;
    size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (used > limit || bytes > limit - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void Give(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  size_t used() const { return used_.load(std::memory_order_relaxed); }
  size_t bytes_max() const { return bytes_max_; }

 private:
  const size_t bytes_max_;
  std::atomic<size_t> used_{0};
};

// Bytes of the budget that one body holds. Movable, one owner at a time.
class BodyCharge {
 public:
  // Holds nothing and cannot grow.
  BodyCharge() = default;
  explicit BodyCharge(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  BodyCharge(BodyCharge&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyCharge& operator=(BodyCharge&& other) noexcept {
    if (this != &other) {
      Release();
      budget_ = std::move(other.budget_);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~BodyCharge() { Release(); }

  // Grows to `bytes` in all; false when the budget does not have them.
  bool GrowTo(size_t bytes) {
    if (bytes <= bytes_) return true;
    if (budget_ == nullptr || !budget_->Take(bytes - bytes_, bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  void Release() {
    if (budget_ != nullptr && bytes_ > 0) budget_->Give(bytes_);
    bytes_ = 0;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace weft::router
