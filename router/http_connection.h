// One HTTP/1.x connection: reads and parses requests one after the other, hands them to their
// handlers and writes the answers. Lives on one io_context thread and is touched by no other. While
// an answer is in the making it keeps reading, to see the client leave (a half-closed connection
// counts as left); a request that was pipelined waits in the input buffer, whose limit is the
// back-pressure. Included by http_connection.cc and http_server.cc only: Boost is in here.

#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "router/doors/http/message.h"
#include "router/doors/http/router.h"
#include "router/doors/http/server.h"
#include "router/observe/probe.h"

namespace weft::router {

class HttpConnection;

// What the connections of all threads share.
struct HttpShared {
  HttpLimits limits;
  Probe* probe = nullptr;
  std::atomic<bool> draining{false};
  // Open connections of the public and of the admin port.
  std::atomic<int64_t> open[2] = {0, 0};
  // Requests whose answer is not complete.
  std::atomic<int64_t> busy{0};
};

// One io_context with its connections: waker and time-outs. Thread: its own.
class HttpWorker {
 public:
  explicit HttpWorker(HttpShared* shared);

  void Add(std::shared_ptr<HttpConnection> connection);
  void Remove(const std::shared_ptr<HttpConnection>& connection);
  // Closes all connections.
  void CloseAll();

  boost::asio::io_context& io() { return io_; }
  IoWaker& waker() { return waker_; }
  HttpShared& shared() { return *shared_; }
  // Where reads go first; nothing stays in it between two calls.
  std::array<char, 65536>& scratch() { return scratch_; }

 private:
  // Checks every connection's deadline a few times per shortest time-out, while there are any: no
  // timer per request.
  void Sweep();

  HttpShared* const shared_;
  boost::asio::io_context io_{1};
  IoWaker waker_;
  boost::asio::steady_timer timer_{io_};
  bool sweeping_ = false;
  absl::flat_hash_set<std::shared_ptr<HttpConnection>> connections_;
  std::array<char, 65536> scratch_;
};

class HttpConnection : public HttpResponder, public std::enable_shared_from_this<HttpConnection> {
 public:
  // `admin` picks the counter of open connections.
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpWorker* worker, const HttpRouter* routes,
                 bool admin);
  ~HttpConnection() override;

  // Begins to read. On the worker's thread.
  void Start();
  // Ends what has run out of time.
  void CheckDeadline(int64_t now_us);
  void Close(CancelReason reason);

  void Reply(HttpReply reply) override;
  void BeginStream(HttpReply head) override;
  void Write(absl::string_view bytes) override;
  void Flush() override;
  void EndStream() override;
  bool writable() const override { return output_.size() - output_at_ < kOutputBytesHigh; }

 private:
  enum class Phase : uint8_t { kIdle, kHeader, kBody, kBusy, kLinger, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Unsent bytes at which a stream keeps its events back.
  static constexpr size_t kOutputBytesHigh = 64u << 10;
  // Unparsed bytes at which reading stops.
  static constexpr size_t kInputBytesMax = 64u << 10;

  void Read();
  void OnReadable();
  void Parse();
  // Parses once; false when more input is needed or the phase has changed.
  bool ParseSome();
  // The header is complete: Expect.
  void OnHeader();
  void OnParseError(boost::system::error_code error);
  void Dispatch();
  // Answers a request that never reached a handler, and closes.
  void Refuse(int status, absl::string_view message);
  void AppendHead(const HttpReply& reply, absl::string_view framing);
  void FinishResponse();
  void NextRequest();
  void Linger();
  void Enter(Phase phase, int64_t timeout_us);

  boost::asio::ip::tcp::socket socket_;
  HttpWorker* const worker_;
  const HttpRouter* const routes_;
  const bool admin_;
  Phase phase_ = Phase::kIdle;
  // When the present phase is over time; 0 = never.
  int64_t deadline_us_ = 0;

  // Reading.
  bool reading_ = false;
  bool parsing_ = false;
  std::string input_;
  size_t input_at_ = 0;
  std::optional<Parser> parser_;
  bool header_seen_ = false;

  // The request being answered.
  std::shared_ptr<HttpExchange> exchange_;
  std::string path_;
  std::string request_id_;
  absl::string_view route_ = "other";
  bool keep_alive_ = false;
  bool http_1_1_ = true;
  bool head_only_ = false;
  bool chunked_ = false;

  // Writing.
  std::string output_;
  size_t output_at_ = 0;
  bool waiting_write_ = false;
  int64_t accepted_us_ = 0;
  bool finishing_ = false;
};

}  // namespace weft::router
