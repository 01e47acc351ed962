#include "shard/ops_server.h"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
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
// A collector, a few probes, and somebody who looks.
constexpr uint32_t kConnectionsMax = 16;
// For the client to close after its answer, so that unread bytes of it do not reset the connection.
constexpr auto kLinger = std::chrono::seconds(1);
// After an accept that failed: the process has no descriptors left, say.
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

absl::Status ListenError(const OpsServerOptions& options, const error_code& error) {
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

// One client: a request, an answer, and the end. Kept alive by what it waits for; `io` thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `ended` is called once, when the connection is closed.
  Connection(tcp::socket socket, const OpsServerOptions& options, std::function<void()> ended)
      : options_(options), ended_(std::move(ended)), stream_(std::move(socket)) {}
  ~Connection() { ended_(); }

  void ReadHead() {
    parser_.header_limit(kHeadBytesMax);
    // For all that follows, until the linger.
    stream_.expires_after(absl::ToChronoMilliseconds(options_.client_timeout));
    http::async_read_header(stream_, input_, parser_,
                            [self = shared_from_this()](const beast::error_code& error, size_t) {
                              if (!error) return self->Answer();
                              if (!IsMalformed(error)) return;
                              self->Write(http::status::bad_request,
                                          "no request that is understood\n");
                            });
  }

 private:
  void Answer() {
    const auto& request = parser_.get();
    absl::string_view path(request.target().data(), request.target().size());
    path = path.substr(0, path.find('?'));
    const ShardHealth health = options_.health ? options_.health() : ShardHealth{};
    const std::string text = absl::StrCat(health.text, "\n");
    const auto well = [&](bool is) {
      Write(is ? http::status::ok : http::status::service_unavailable, text);
    };
    if (request.method() != http::verb::get) path = "";
    if (path == "/metrics") return Write(http::status::ok, RenderMetrics());
    if (path == "/livez") return well(health.live);
    if (path == "/readyz") return well(health.ready && health.live);
    if (path == "/startupz") return well(health.started);
    Write(http::status::not_found, "a shard has GET /metrics, /livez, /readyz and /startupz\n");
  }

  void Write(http::status status, std::string body) {
    response_.version(11);
    response_.result(status);
    response_.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    response_.keep_alive(false);
    response_.body() = std::move(body);
    response_.prepare_payload();
    http::async_write(stream_, response_,
                      [self = shared_from_this()](const beast::error_code& error, size_t) {
                        if (error) return;
                        beast::error_code ignored;
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
                        self->stream_.expires_after(kLinger);
                        self->Linger();
                      });
  }

  // Drops what still comes until the client closes or the time is over.
  void Linger() {
    stream_.async_read_some(asio::buffer(dropped_),
                            [self = shared_from_this()](const beast::error_code& error, size_t) {
                              if (!error) self->Linger();
                            });
  }

  const OpsServerOptions& options_;
  const std::function<void()> ended_;
  beast::tcp_stream stream_;
  beast::flat_static_buffer<kHeadBytesMax> input_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  std::array<char, 1024> dropped_;
};

}  // namespace

// One thread runs `io_`; what is below it is touched by that thread alone once it has started.
class OpsServer::Impl {
 public:
  explicit Impl(const OpsServerOptions& options) : options_(options) {}
  ~Impl() {
    io_.stop();
    thread_.Join();
    // Connections that end with `io_` make no room for newcomers.
    accepting_ = true;
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
  // The next client, unless there are enough: then it waits in the kernel for one to end.
  void Accept() {
    if (accepting_ || connections_ == kConnectionsMax) return;
    accepting_ = true;
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      accepting_ = false;
      if (error) {
        WEFT_LOG_WARN("metrics: accept failed: {}", error.message());
        retry_.expires_after(kAcceptRetry);
        retry_.async_wait([this](error_code) { Accept(); });
        return;
      }
      ++connections_;
      const auto ended = [this] {
        --connections_;
        Accept();
      };
      std::make_shared<Connection>(std::move(socket), options_, ended)->ReadHead();
      Accept();
    });
  }

  const OpsServerOptions options_;
  uint32_t connections_ = 0;
  bool accepting_ = false;
  // After what its handlers hold.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer retry_{io_};
  uint16_t port_ = 0;
  Thread thread_;
};

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(const OpsServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  WEFT_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<OpsServer>(new OpsServer(std::move(impl)));
}

OpsServer::OpsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OpsServer::~OpsServer() = default;

std::string OpsServer::address() const { return impl_->address(); }

}  // namespace weft::shard
