#include "router/shards/poller.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/container/inlined_vector.h"
#include "common/check.h"
#include "common/thread_watch.h"

namespace weft::router {
namespace {

constexpr size_t kTargetsInlined = 8;

}  // namespace

SocketPoller::SocketPoller(const Clock* clock)
    : clock_(clock), wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  WEFT_CHECK_MSG(wake_fd_ >= 0, "eventfd: out of file descriptors");
}

SocketPoller::~SocketPoller() { close(wake_fd_); }

void SocketPoller::Add(PollTarget* target) { targets_.push_back(target); }

void SocketPoller::Remove(PollTarget* target) {
  targets_.erase(std::remove(targets_.begin(), targets_.end(), target), targets_.end());
}

void SocketPoller::Wait(int64_t until_us) {
  absl::InlinedVector<pollfd, kTargetsInlined + 1> fds;
  fds.push_back({wake_fd_, POLLIN, 0});
  for (const PollTarget* target : targets_) {
    fds.push_back({target->fd(), target->events(), 0});  // poll skips negative descriptors
    until_us = std::min(until_us, target->timer_us());
  }
  State running = State::kRunning;
  const bool sleeps = state_.compare_exchange_strong(running, State::kSleeping);
  const int64_t wait_us = sleeps ? std::max<int64_t>(until_us - clock_->NowUs(), 0) : 0;
  const timespec timeout = {wait_us / 1'000'000, wait_us % 1'000'000 * 1000};
  const int ready = [&] {
    const WatchedWait wait;
    return ppoll(fds.data(), fds.size(), &timeout, nullptr);
  }();
  WEFT_CHECK(ready >= 0 || errno == EINTR);
  // From here on a Wake needs no system call, least of all one by the targets themselves.
  state_.store(State::kRunning);
  const int64_t now_us = clock_->NowUs();
  if (ready > 0 && fds[0].revents != 0) {
    uint64_t count = 0;
    // A wake-up that another wait has answered already leaves nothing to read.
    WEFT_CHECK(read(wake_fd_, &count, sizeof(count)) > 0 || errno == EAGAIN);
  }
  for (size_t i = 0; i < targets_.size(); ++i) {
    PollTarget& target = *targets_[i];
    if (ready > 0 && fds[i + 1].revents != 0) target.OnReady(fds[i + 1].revents, now_us);
    if (now_us >= target.timer_us()) target.OnTimer(now_us);
  }
  // Whatever was put down before this point is seen by the caller, who looks after Wait.
  state_.store(State::kRunning);
}

void SocketPoller::Wake() {
  if (state_.exchange(State::kWoken) != State::kSleeping) return;
  const uint64_t one = 1;
  // Full cannot be: one write per sleep.
  WEFT_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
}

}  // namespace weft::router
