// weft trace: asks a running server's admin port for a timeline of the next seconds and writes it
// to a file that Perfetto opens. The file has its name only once it is complete.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "common/flags.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"

namespace weft::launcher {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr uint32_t kSecondsMax = 60;
// A timeline that is being written comes in pieces, without a pause between them.
constexpr std::chrono::seconds kSilenceMax{30};
constexpr std::chrono::seconds kConnectMax{5};

struct TraceOptions {
  std::string connect = "127.0.0.1:9400";
  uint32_t seconds = 5;
  std::string out = "weft-trace.json";
};

absl::Status NoServer(const TraceOptions& options, const error_code& error) {
  return absl::UnavailableError(
      absl::StrCat("--connect ", options.connect, ": ", error.message(),
                   "; name the admin port of a server that was started with --admin-port"));
}

// One request, one answer; every wait has an end.
class TraceClient {
 public:
  explicit TraceClient(const TraceOptions& options) : options_(options), stream_(context_) {}

  absl::Status Connect() {
    const size_t colon = options_.connect.rfind(':');
    absl::string_view host = absl::string_view(options_.connect).substr(0, colon);
    if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
    boost::asio::ip::tcp::resolver resolver(context_);
    error_code error;
    const auto found =
        resolver.resolve(std::string(host), options_.connect.substr(colon + 1), error);
    if (error) return NoServer(options_, error);
    error = Wait(kConnectMax, [&](auto done) {
      stream_.async_connect(found, [done](const error_code& end, const auto&) { done(end); });
    });
    return error ? NoServer(options_, error) : absl::OkStatus();
  }

  // Writes the answer's body to `path`.
  absl::Status Fetch(const std::string& path) {
    http::request<http::empty_body> request(
        http::verb::get, absl::StrCat("/debug/trace?seconds=", options_.seconds), 11);
    request.set(http::field::host, options_.connect);
    error_code error = Wait(kConnectMax, [&](auto done) {
      http::async_write(stream_, request, [done](const error_code& end, size_t) { done(end); });
    });
    if (error) return NoServer(options_, error);
    http::response_parser<http::empty_body> head;
    error = Wait(kSilenceMax, [&](auto done) {
      http::async_read_header(stream_, buffer_, head,
                              [done](const error_code& end, size_t) { done(end); });
    });
    if (error) return NoServer(options_, error);
    if (head.get().result() != http::status::ok) return Refused(&head);
    http::response_parser<http::file_body> body(std::move(head));
    body.body_limit(boost::none);
    body.get().body().open(path.c_str(), beast::file_mode::write, error);
    if (error) return absl::UnavailableError(absl::StrCat("--out: ", path, ": ", error.message()));
    while (!body.is_done()) {
      error = Wait(kSilenceMax + std::chrono::seconds(options_.seconds), [&](auto done) {
        http::async_read_some(stream_, buffer_, body,
                              [done](const error_code& end, size_t) { done(end); });
      });
      if (error) {
        return absl::UnavailableError(
            absl::StrCat("the timeline broke off: ", error.message(), " (did the server end?)"));
      }
    }
    return absl::OkStatus();
  }

 private:
  template <typename Start>
  error_code Wait(std::chrono::seconds timeout, Start start) {
    error_code result;
    stream_.expires_after(timeout);
    start([&result](const error_code& end) { result = end; });
    context_.restart();
    context_.run();
    return result;
  }

  absl::Status Refused(http::response_parser<http::empty_body>* head) {
    http::response_parser<http::string_body> body(std::move(*head));
    const error_code error = Wait(kConnectMax, [&](auto done) {
      http::async_read(stream_, buffer_, body,
                       [done](const error_code& end, size_t) { done(end); });
    });
    const unsigned code = body.get().result_int();
    const std::string text = error ? "" : body.get().body();
    if (code == 404) {
      return absl::NotFoundError(
          absl::StrCat("--connect ", options_.connect,
                       " has no /debug/trace: is it the admin port (--admin-port of weft serve)?"));
    }
    return absl::FailedPreconditionError(absl::StrCat("HTTP ", code, ": ", text));
  }

  const TraceOptions& options_;
  boost::asio::io_context context_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
};

absl::Status Trace(const TraceOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckConnect(options.connect));
  if (options.out.empty()) return absl::InvalidArgumentError("--out: expected a file");
  TraceClient client(options);
  WEFT_RETURN_IF_ERROR(client.Connect());
  const std::string part = absl::StrCat(options.out, ".part");
  const absl::Cleanup remove = [&part] { unlink(part.c_str()); };
  WEFT_RETURN_IF_ERROR(client.Fetch(part));
  if (std::rename(part.c_str(), options.out.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("--out: ", options.out, ": ", std::strerror(errno)));
  }
  std::printf("%s: %u s; open it at https://ui.perfetto.dev or chrome://tracing\n",
              options.out.c_str(), options.seconds);
  return absl::OkStatus();
}

}  // namespace

int RunTrace(int argc, char** argv) {
  TraceOptions options;
  Flags flags("weft trace", "Writes a timeline of what a running server does.");
  flags.Add("connect", &options.connect, "Admin port of the server, host:port");
  flags.AddNumber("seconds", &options.seconds, 1, kSecondsMax, "How long, s");
  flags.Add("out", &options.out, "File to write");
  return RunCommand(flags, argc, argv, [&options] { return Trace(options); });
}

}  // namespace weft::launcher
