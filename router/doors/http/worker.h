// One io_context with its connections: waker, time-outs, and who gives way when places are short.
// Made and stopped by the server; a connection lives on one worker's thread and is touched by no
// other. Included by the server and its connections only: Boost is in here.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "router/doors/http/body_budget.h"
#include "router/doors/http/body_shares.h"
#include "router/doors/http/limits.h"
#include "router/doors/http/message.h"
#include "router/doors/http/origin.h"
#include "router/doors/http/server.h"
#include "router/doors/http/waiting_order.h"
#include "router/observe/probe.h"

namespace weft::router {

class HttpConnection;

// What the connections of all threads share.
struct HttpShared {
  HttpShared(const HttpServerOptions& options, Probe* metrics)
      : limits(options.limits),
        origins(options.cors_origins),
        own_page(options.own_page),
        bodies(std::make_shared<BodyBudget>(options.limits.bodies_budget())),
        body_shares(options.limits.bodies_budget()),
        probe(metrics) {}

  const HttpLimits limits;
  const OriginPolicy origins;
  const bool own_page;
  const std::shared_ptr<BodyBudget> bodies;
  BodyShares body_shares;
  Probe* const probe;
  std::atomic<bool> draining{false};
  // Open connections of the public and of the admin port.
  std::atomic<int64_t> open[2] = {0, 0};
  // Of these, how many are only being told that there is no place.
  std::atomic<int64_t> turned_away[2] = {0, 0};
  // Requests whose answer is not complete.
  std::atomic<int64_t> busy{0};
  // TLS handshakes under way.
  std::atomic<int64_t> handshakes{0};
};

class HttpWorker {
 public:
  explicit HttpWorker(HttpShared* shared);

  // Takes a connection. `crowded`: there is no place for it unless another gives way; else it is
  // told so and closed.
  void Add(std::shared_ptr<HttpConnection> connection, bool crowded);
  void Remove(const std::shared_ptr<HttpConnection>& connection);
  // Closes the oldest handshake under way; false when there is none here.
  bool EndOldestHandshake(bool admin);
  // Closes all connections.
  void CloseAll();

  boost::asio::io_context& io() { return io_; }
  IoWaker& waker() { return waker_; }
  HttpShared& shared() { return *shared_; }
  WaitingOrder& waiting(bool admin) { return waiting_[admin ? 1 : 0]; }
  // Where reads go first; nothing stays in it between two calls.
  std::array<char, 65536>& scratch() { return scratch_; }

 private:
  // Checks every connection's deadline a few times per shortest time-out, while there are any: no
  // timer per request.
  void Sweep();
  bool MakeRoom(bool admin);

  HttpShared* const shared_;
  boost::asio::io_context io_{1};
  IoWaker waker_;
  boost::asio::steady_timer timer_{io_};
  bool sweeping_ = false;
  // One for each port; before the connections, which leave it when they are destroyed.
  std::array<WaitingOrder, 2> waiting_;
  absl::flat_hash_set<std::shared_ptr<HttpConnection>> connections_;
  std::array<char, 65536> scratch_;
};

}  // namespace weft::router
