// A listening port: accepts, counts, and deals connections out to the workers. What arrives beyond
// the limit takes the place of a connection that waits for its client, or is told so and closed;
// descriptors held in reserve make sure that it can be accepted at all. Runs on the first worker's
// thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "router/doors/http/router.h"
#include "router/doors/http/server.h"
#include "router/doors/http/worker.h"

namespace weft::router {

// Open descriptors of nothing, given up one by one when the process has no others left.
class SpareDescriptors {
 public:
  explicit SpareDescriptors(size_t count);
  ~SpareDescriptors();

  SpareDescriptors(const SpareDescriptors&) = delete;
  SpareDescriptors& operator=(const SpareDescriptors&) = delete;

  // Closes one; false when none is left.
  bool GiveUp();
  // Opens those that were given up, as far as that goes.
  void Refill();
  size_t size() const { return descriptors_.size(); }

 private:
  const size_t count_;
  std::vector<int> descriptors_;
};

class HttpListener {
 public:
  struct Options {
    std::string host;
    uint16_t port = 0;
    bool admin = false;
    int64_t connections_max = 0;
    HttpTlsContext tls_context;
  };

  // All but the options must outlive this.
  HttpListener(Options options, const HttpRouter* routes,
               const std::vector<std::unique_ptr<HttpWorker>>* workers);

  // Binds and listens. Errors name address and port and the way out.
  absl::Status Listen();
  // Begins to accept.
  void Start() { Accept(); }
  // On the first worker's thread: accepts no more.
  void Close();
  uint16_t port() const { return port_; }

 private:
  // Beyond the limit so many are told so and listened to until they close; the others get their
  // answer and are closed in one go.
  static constexpr int64_t kCrowdMax = 64;
  // For one port; an accept needs one of them.
  static constexpr size_t kSpareDescriptors = 8;
  // A worker is dealt so many connections at most before it has begun to serve them: its streams
  // wait behind them in its queue, some 15 us for each.
  static constexpr int kDealtMax = 32;

  void Accept();
  // Whether the next connection can be accepted at once; else that happens when the worker has
  // caught up.
  bool OnAccepted(boost::asio::ip::tcp::socket socket, size_t worker_index);
  bool Deal(std::shared_ptr<HttpConnection> connection, size_t worker_index, bool crowded);
  // Logs that connections are lost, once in a while.
  void Warn(const std::string& what);
  void OnAcceptError(const boost::system::error_code& error);
  void TurnAway(boost::asio::ip::tcp::socket socket) const;

  const Options options_;
  const HttpRouter* const routes_;
  const std::vector<std::unique_ptr<HttpWorker>>& workers_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  SpareDescriptors spare_;
  uint16_t port_ = 0;
  size_t next_ = 0;
  // By worker: dealt to it since it last caught up.
  std::vector<int> dealt_;
  // When the log last said so.
  int64_t warned_us_ = 0;
};

}  // namespace weft::router
