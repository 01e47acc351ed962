#include "router/doors/http/listener.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/post.hpp"
#include "common/clock.h"
#include "common/log.h"
#include "router/doors/http/connection.h"

namespace weft::router {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int64_t kWarnUs = 10'000'000;

absl::Status ListenError(const std::string& host, uint16_t port, const error_code& error) {
  const std::string message =
      absl::StrCat("cannot listen on ", host, ":", port, ": ", error.message());
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat(message, "; choose another port, or 0 for a free one"));
  }
  return absl::FailedPreconditionError(message);
}

bool IsShortOfDescriptors(const error_code& error) {
  return error == boost::system::errc::too_many_files_open ||
         error == boost::system::errc::too_many_files_open_in_system;
}

}  // namespace

SpareDescriptors::SpareDescriptors(size_t count) : count_(count) { Refill(); }

SpareDescriptors::~SpareDescriptors() {
  while (GiveUp()) {
  }
}

bool SpareDescriptors::GiveUp() {
  if (descriptors_.empty()) return false;
  close(descriptors_.back());
  descriptors_.pop_back();
  return true;
}

void SpareDescriptors::Refill() {
  while (descriptors_.size() < count_) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    descriptors_.push_back(fd);
  }
}

HttpListener::HttpListener(Options options, const HttpRouter* routes,
                           const std::vector<std::unique_ptr<HttpWorker>>* workers)
    : options_(std::move(options)),
      routes_(routes),
      workers_(*workers),
      acceptor_(workers_[0]->io()),
      retry_(workers_[0]->io()),
      spare_(kSpareDescriptors),
      dealt_(workers->size(), 0) {}

absl::Status HttpListener::Listen() {
  error_code error;
  const std::string& host = options_.host;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", host, "` is not an IP address to listen on"));
  }
  const tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) {
    HttpSocket::SetInheritedOptions(acceptor_.native_handle(), workers_[0]->shared().limits);
  }
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return ListenError(host, options_.port, error);
  port_ = acceptor_.local_endpoint(error).port();
  return absl::OkStatus();
}

void HttpListener::Close() {
  error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
}

void HttpListener::Accept() {
  if (!acceptor_.is_open()) return;
  const size_t index = next_++ % workers_.size();
  acceptor_.async_accept(workers_[index]->io(),
                         [this, index](error_code error, tcp::socket socket) {
                           if (error == asio::error::operation_aborted) return;
                           if (error) {
                             OnAcceptError(error);
                             return;
                           }
                           if (OnAccepted(std::move(socket), index)) Accept();
                         });
}

bool HttpListener::OnAccepted(tcp::socket socket, size_t worker_index) {
  HttpWorker* const worker = workers_[worker_index].get();
  const HttpShared& shared = worker->shared();
  const int64_t open = shared.open[options_.admin].load();
  const int64_t served = open - shared.turned_away[options_.admin].load();
  // A descriptor that was given up for this connection is not there for others.
  spare_.Refill();
  if (open >= options_.connections_max + kCrowdMax) {
    TurnAway(std::move(socket));
    return true;
  }
  // Operators are let in with a descriptor from the reserve too.
  const bool crowded =
      served >= options_.connections_max || (!options_.admin && spare_.size() < kSpareDescriptors);
  std::shared_ptr<SSL_CTX> context;
  if (options_.tls_context != nullptr) {
    context = options_.tls_context();
    if (context == nullptr) {
      Warn("no TLS certificate is loaded");
      return true;
    }
  }
  auto connection = std::make_shared<HttpConnection>(std::move(socket), std::move(context), worker,
                                                     routes_, options_.admin);
  return Deal(std::move(connection), worker_index, crowded);
}

bool HttpListener::Deal(std::shared_ptr<HttpConnection> connection, size_t worker_index,
                        bool crowded) {
  HttpWorker* const worker = workers_[worker_index].get();
  const bool last = ++dealt_[worker_index] == kDealtMax;
  asio::post(worker->io(),
             [this, worker, worker_index, connection = std::move(connection), crowded, last] {
               worker->Add(connection, crowded);
               if (!last) return;
               asio::post(workers_[0]->io(), [this, worker_index] {
                 dealt_[worker_index] = 0;
                 Accept();
               });
             });
  return !last;
}

void HttpListener::Warn(const std::string& what) {
  const int64_t now_us = MonotonicClock().NowUs();
  if (warned_us_ != 0 && now_us - warned_us_ < kWarnUs) return;
  warned_us_ = now_us;
  WEFT_LOG_WARN("http accept failed port={} error=\"{}\"", port_, what);
}

void HttpListener::OnAcceptError(const error_code& error) {
  Warn(error.message());
  if (IsShortOfDescriptors(error) && spare_.GiveUp()) {
    Accept();
    return;
  }
  // Connections wait in the kernel's queue meanwhile.
  retry_.expires_after(std::chrono::milliseconds(100));
  retry_.async_wait([this](error_code wait_error) {
    if (wait_error) return;
    spare_.Refill();
    Accept();
  });
}

void HttpListener::TurnAway(tcp::socket socket) const {
  static constexpr char kReply[] =
      "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
      "content-type: application/json\r\ncontent-length: 58\r\n\r\n"
      "{\"error\":\"too many connections\",\"error_type\":\"overloaded\"}";
  error_code ignored;
  socket.non_blocking(true, ignored);
  if (options_.tls_context == nullptr) {
    socket.write_some(asio::buffer(kReply, sizeof(kReply) - 1), ignored);
  }
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

}  // namespace weft::router
