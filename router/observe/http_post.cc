#include "router/observe/http_post.h"

#include <atomic>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"

namespace weft::router {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// The specification's default for a whole export.
constexpr std::chrono::seconds kTimeout{10};
// A collector's answer is a few words.
constexpr uint64_t kAnswerBytesMax = 64u << 10;

}  // namespace

struct HttpPost::Io {
  boost::asio::io_context context;
  std::atomic<bool> stopped{false};

  // Runs what `start` begins to its end; its error, or OPERATION_ABORTED after Stop.
  template <typename Start>
  error_code Wait(Start start) {
    error_code result = boost::asio::error::operation_aborted;
    start([&result](const error_code& end) { result = end; });
    // Stop comes before restart, and is seen here, or after it, and ends run.
    context.restart();
    if (stopped.load()) return result;
    context.run();
    return result;
  }
};

HttpPost::HttpPost(const OtlpOptions* options) : options_(options), io_(std::make_unique<Io>()) {}
HttpPost::~HttpPost() = default;

absl::StatusOr<unsigned> HttpPost::Send(const std::string& body) {
  const auto failed = [this](absl::string_view what, const error_code& error) {
    return absl::UnavailableError(
        absl::StrCat(what, " ", options_->host, ":", options_->port, ": ", error.message()));
  };
  beast::tcp_stream stream(io_->context);
  boost::asio::ip::tcp::resolver resolver(io_->context);
  stream.expires_after(kTimeout);
  boost::asio::ip::tcp::resolver::results_type found;
  error_code error = io_->Wait([&](auto done) {
    resolver.async_resolve(options_->host, options_->port,
                           [done, &found](const error_code& end, auto results) {
                             found = std::move(results);
                             done(end);
                           });
  });
  if (error) return failed("cannot find", error);
  error = io_->Wait([&](auto done) {
    stream.async_connect(found, [done](const error_code& end, const auto&) { done(end); });
  });
  if (error) return failed("cannot connect to", error);
  http::request<http::string_body> request(http::verb::post, options_->path, 11);
  // An IPv6 address stands in brackets.
  const bool six = absl::StrContains(options_->host, ':');
  request.set(http::field::host,
              absl::StrCat(six ? "[" : "", options_->host, six ? "]" : "", ":", options_->port));
  request.set(http::field::content_type, "application/x-protobuf");
  request.set(http::field::connection, "close");
  for (const auto& [key, value] : options_->headers) request.set(key, value);
  request.body() = body;
  request.prepare_payload();
  error = io_->Wait([&](auto done) {
    http::async_write(stream, request, [done](const error_code& end, size_t) { done(end); });
  });
  if (error) return failed("cannot send to", error);
  beast::flat_buffer buffer(kAnswerBytesMax);
  http::response_parser<http::string_body> answer;
  answer.body_limit(kAnswerBytesMax);
  error = io_->Wait([&](auto done) {
    http::async_read_header(stream, buffer, answer,
                            [done](const error_code& end, size_t) { done(end); });
  });
  if (error) return failed("no answer of", error);
  return answer.get().result_int();
}

void HttpPost::Stop() {
  io_->stopped.store(true);
  io_->context.stop();
}

}  // namespace weft::router
