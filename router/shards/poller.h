// Where the engine loop's thread waits: for the sockets of its shards, for their timers and for
// other threads that have something for it. Owned by the engine loop; everything but Wake is called
// by its thread only. It never blocks elsewhere and keeps no queue: whoever calls Wake has put its
// message somewhere first. An interface, because a simulation waits for nothing: it writes down
// until when, and goes on to whatever comes first (invariant engine.sim).

#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/clock.h"

namespace weft::router {

// Something with a socket and a timer.
class PollTarget {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  virtual ~PollTarget() = default;

  // The descriptor to watch, -1 for none, and for what (POLLIN, POLLOUT). Asked before every wait.
  virtual int fd() const = 0;
  virtual short events() const = 0;
  // When OnTimer is to be called, kNever for not at all.
  virtual int64_t timer_us() const = 0;

  // `events` as poll(2) gives them; never 0.
  virtual void OnReady(short events, int64_t now_us) = 0;
  // At or after timer_us().
  virtual void OnTimer(int64_t now_us) = 0;
};

class Poller {
 public:
  virtual ~Poller() = default;

  // `target` must stay until Remove. Neither is called from inside OnReady or OnTimer.
  virtual void Add(PollTarget* target) = 0;
  virtual void Remove(PollTarget* target) = 0;

  // Serves targets once: waits until one is ready, a timer is due, Wake was called since the last
  // Wait, or `until_us` has come.
  virtual void Wait(int64_t until_us) = 0;

  // From any thread: the present or the next Wait returns.
  virtual void Wake() = 0;
};

// The one for sockets. A handful of them, so poll(2) serves; Wake costs a system call only while
// the thread sleeps.
class SocketPoller : public Poller {
 public:
  // `clock` must outlive this.
  explicit SocketPoller(const Clock* clock);
  ~SocketPoller() override;

  SocketPoller(const SocketPoller&) = delete;
  SocketPoller& operator=(const SocketPoller&) = delete;

  void Add(PollTarget* target) override;
  void Remove(PollTarget* target) override;
  void Wait(int64_t until_us) override;
  void Wake() override;

 private:
  enum class State : int { kRunning, kSleeping, kWoken };

  const Clock* const clock_;
  const int wake_fd_;
  std::atomic<State> state_{State::kRunning};
  std::vector<PollTarget*> targets_;
};

}  // namespace weft::router
