#include "router/doors/http/worker.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "boost/asio/post.hpp"
#include "common/clock.h"
#include "common/thread_watch.h"
#include "router/doors/http/connection.h"

namespace weft::router {
namespace {

using boost::system::error_code;

}  // namespace

HttpWorker::HttpWorker(HttpShared* shared)
    : shared_(shared), waker_([this] { boost::asio::post(io_, [this] { waker_.Drain(); }); }) {}

void HttpWorker::Add(std::shared_ptr<HttpConnection> connection, bool crowded) {
  const bool room = !crowded || MakeRoom(connection->admin());
  connections_.insert(connection);
  if (room) {
    connection->Start();
  } else {
    connection->TurnAway();
  }
  if (!sweeping_) Sweep();
}

void HttpWorker::Remove(const std::shared_ptr<HttpConnection>& connection) {
  connections_.erase(connection);
}

bool HttpWorker::MakeRoom(bool admin) {
  Waiting* const victim = waiting(admin).FindVictim(MonotonicClock().NowUs());
  if (victim == nullptr) return false;
  static_cast<HttpConnection*>(victim)->Close(CancelReason::kClientGone);
  return true;
}

bool HttpWorker::EndOldestHandshake(bool admin) {
  Waiting* const victim = waiting(admin).OldestHandshake();
  if (victim == nullptr) return false;
  static_cast<HttpConnection*>(victim)->Close(CancelReason::kClientGone);
  return true;
}

void HttpWorker::CloseAll() {
  timer_.cancel();
  const std::vector<std::shared_ptr<HttpConnection>> all(connections_.begin(), connections_.end());
  for (const std::shared_ptr<HttpConnection>& connection : all) {
    connection->Close(CancelReason::kAdmin);
  }
}

void HttpWorker::Sweep() {
  sweeping_ = !connections_.empty();
  if (!sweeping_) return StopWatching();
  ComeRound();
  const int64_t now_us = MonotonicClock().NowUs();
  const std::vector<std::shared_ptr<HttpConnection>> all(connections_.begin(), connections_.end());
  for (const std::shared_ptr<HttpConnection>& connection : all) connection->CheckDeadline(now_us);
  const HttpLimits& limits = shared_->limits;
  const int64_t shortest_us =
      std::min({limits.header_timeout_us, limits.body_timeout_us, limits.body_window_us,
                limits.idle_timeout_us, limits.slow_reader_timeout_us, limits.reader_window_us,
                limits.linger_timeout_us, limits.silence_us});
  timer_.expires_after(
      std::chrono::microseconds(std::clamp<int64_t>(shortest_us / 4, 2'000, 1'000'000)));
  timer_.async_wait([this](error_code error) {
    if (!error) Sweep();
  });
}

}  // namespace weft::router
