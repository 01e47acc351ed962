#include "shard/metrics_server.h"

#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/error.hpp"
#include "boost/beast/core/flat_static_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "boost/beast/http/string_body.hpp"
#include "boost/beast/http/write.hpp"
#include "common/host_port.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/status.h"
#include "common/thread.h"

namespace weft::shard {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kHeadBytesMax = 8192;
// For the client to close after its answer, so that unread bytes of it do not reset the connection.
constexpr auto kLinger = std::chrono::seconds(1);
// After an accept that failed: the process has no descriptors left, say.
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

absl::Status ListenError(const MetricsServerOptions& options, const error_code& error) {
  const std::string message =
      absl::StrCat("--metrics-port: cannot listen on ", HostPort(options.host, options.port), ": ",
                   error.message());
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat(message, "; choose another port, or 0 for a free one"));
  }
  if (error == asio::error::access_denied) {
    return absl::PermissionDeniedError(
        absl::StrCat(message, "; choose a port above 1023, or 0 for a free one"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(message, "; give --metrics-host an address of this machine"));
}

// A client that is gone, cut off or too slow hears nothing more.
bool IsMalformed(const beast::error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

// One thread runs `io_`; what is below it is touched by that thread alone once it has started.
class MetricsServer::Impl {
 public:
  explicit Impl(const MetricsServerOptions& options) : options_(options) {}
  ~Impl() {
    io_.stop();
    thread_.Join();
  }

  absl::Status Start() {
    error_code error;
    const std::string host(options_.host == "localhost" ? "127.0.0.1"
                                                        : WithoutBrackets(options_.host));
    const asio::ip::address address = asio::ip::make_address(host, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--metrics-host: \"", options_.host,
          "\" is not an IP address to listen on; 127.0.0.1 is for this machine alone, 0.0.0.0 for "
          "all that reach it"));
    }
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options_.port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (error) return ListenError(options_, error);
    Accept();
    WEFT_ASSIGN_OR_RETURN(thread_, Thread::Start("metrics", [this] { io_.run(); }));
    return absl::OkStatus();
  }

  std::string address() const { return HostPort(options_.host, port_); }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) {
        WEFT_LOG_WARN("metrics: accept failed: {}", error.message());
        retry_.expires_after(kAcceptRetry);
        retry_.async_wait([this](error_code) { Accept(); });
        return;
      }
      stream_.emplace(std::move(socket));
      ReadHead();
    });
  }

  void ReadHead() {
    input_.clear();
    parser_.emplace();
    parser_->header_limit(kHeadBytesMax);
    // For all that follows, until the linger.
    stream_->expires_after(absl::ToChronoMilliseconds(options_.client_timeout));
    http::async_read_header(*stream_, input_, *parser_,
                            [this](const beast::error_code& error, size_t) {
                              if (!error) return Answer();
                              if (!IsMalformed(error)) return Next();
                              Write(http::status::bad_request, "no request that is understood\n");
                            });
  }

  void Answer() {
    const auto& request = parser_->get();
    absl::string_view path(request.target().data(), request.target().size());
    path = path.substr(0, path.find('?'));
    if (request.method() == http::verb::get && path == "/metrics") {
      Write(http::status::ok, RenderMetrics());
    } else {
      Write(http::status::not_found, "a shard has GET /metrics alone\n");
    }
  }

  void Write(http::status status, std::string body) {
    response_ = {};
    response_.version(11);
    response_.result(status);
    response_.set(http::field::content_type, status == http::status::ok
                                                 ? "text/plain; version=0.0.4; charset=utf-8"
                                                 : "text/plain; charset=utf-8");
    // The next client waits for this one's end.
    response_.keep_alive(false);
    response_.body() = std::move(body);
    response_.prepare_payload();
    http::async_write(*stream_, response_, [this](const beast::error_code& error, size_t) {
      if (error) return Next();
      beast::error_code ignored;
      stream_->socket().shutdown(tcp::socket::shutdown_send, ignored);
      stream_->expires_after(kLinger);
      Linger();
    });
  }

  // Drops what still comes until the client closes or the time is over.
  void Linger() {
    stream_->async_read_some(asio::buffer(dropped_),
                             [this](const beast::error_code& error, size_t) {
                               if (error) return Next();
                               Linger();
                             });
  }

  void Next() {
    stream_.reset();
    Accept();
  }

  const MetricsServerOptions options_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer retry_{io_};
  uint16_t port_ = 0;

  // The connection under way.
  std::optional<beast::tcp_stream> stream_;
  beast::flat_static_buffer<kHeadBytesMax> input_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::array<char, 1024> dropped_;

  Thread thread_;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const MetricsServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  WEFT_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() = default;

std::string MetricsServer::address() const { return impl_->address(); }

}  // namespace weft::shard
