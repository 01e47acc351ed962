#include "router/http_connection.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/post.hpp"
#include "boost/beast/http/error.hpp"
#include "common/clock.h"
#include "common/version.h"
#include "router/doors/front.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

int64_t NowUs() { return MonotonicClock().NowUs(); }

absl::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

HttpMethod MethodOf(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return HttpMethod::kGet;
    case http::verb::head:
      return HttpMethod::kHead;
    case http::verb::post:
      return HttpMethod::kPost;
    default:
      return HttpMethod::kOther;
  }
}

}  // namespace

// -- Worker --------------------------------------------------------------------------------------

HttpWorker::HttpWorker(HttpShared* shared)
    : shared_(shared), waker_([this] { asio::post(io_, [this] { waker_.Drain(); }); }) {}

void HttpWorker::Add(std::shared_ptr<HttpConnection> connection) {
  connections_.insert(connection);
  connection->Start();
  if (!sweeping_) Sweep();
}

void HttpWorker::Remove(const std::shared_ptr<HttpConnection>& connection) {
  connections_.erase(connection);
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
  if (!sweeping_) return;
  const int64_t now_us = NowUs();
  const std::vector<std::shared_ptr<HttpConnection>> all(connections_.begin(), connections_.end());
  for (const std::shared_ptr<HttpConnection>& connection : all) connection->CheckDeadline(now_us);
  const HttpLimits& limits = shared_->limits;
  const int64_t shortest_us =
      std::min({limits.header_timeout_us, limits.body_timeout_us, limits.idle_timeout_us,
                limits.slow_reader_timeout_us, limits.linger_timeout_us});
  timer_.expires_after(
      std::chrono::microseconds(std::clamp<int64_t>(shortest_us / 4, 2'000, 1'000'000)));
  timer_.async_wait([this](error_code error) {
    if (!error) Sweep();
  });
}

// -- Reading -------------------------------------------------------------------------------------

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpWorker* worker,
                               const HttpRouter* routes, bool admin)
    : socket_(std::move(socket)), worker_(worker), routes_(routes), admin_(admin) {
  worker_->shared().open[admin_].fetch_add(1);
  worker_->shared().probe->HttpConnections(1);
}

HttpConnection::~HttpConnection() {
  worker_->shared().open[admin_].fetch_sub(1);
  worker_->shared().probe->HttpConnections(-1);
}

void HttpConnection::Start() {
  error_code error;
  socket_.non_blocking(true, error);
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  // A client has to say something soon after it connects.
  Enter(Phase::kIdle, worker_->shared().limits.header_timeout_us);
  Read();
}

void HttpConnection::Enter(Phase phase, int64_t timeout_us) {
  const bool was_busy = phase_ == Phase::kBusy;
  const bool is_busy = phase == Phase::kBusy;
  if (was_busy != is_busy) worker_->shared().busy.fetch_add(is_busy ? 1 : -1);
  phase_ = phase;
  deadline_us_ = timeout_us == 0 ? 0 : NowUs() + timeout_us;
}

void HttpConnection::CheckDeadline(int64_t now_us) {
  if (waiting_write_ && now_us - accepted_us_ > worker_->shared().limits.slow_reader_timeout_us) {
    Close(CancelReason::kSlowReader);
    return;
  }
  if (deadline_us_ == 0 || now_us < deadline_us_) return;
  if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    Refuse(408, "the request did not arrive in time");
  } else {
    Close(CancelReason::kClientGone);
  }
}

void HttpConnection::Read() {
  if (reading_ || phase_ == Phase::kClosed) return;
  if (phase_ != Phase::kLinger && input_.size() - input_at_ >= kInputBytesMax) return;
  reading_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](error_code error) {
                       self->reading_ = false;
                       if (error) {
                         self->Close(CancelReason::kClientGone);
                       } else {
                         self->OnReadable();
                       }
                     });
}

void HttpConnection::OnReadable() {
  if (phase_ == Phase::kClosed) return;
  auto& scratch = worker_->scratch();
  const size_t room = kInputBytesMax - std::min(kInputBytesMax, input_.size() - input_at_);
  error_code error;
  const size_t count = socket_.read_some(
      asio::buffer(scratch.data(), phase_ == Phase::kLinger ? scratch.size() : room), error);
  if (error == asio::error::would_block || error == asio::error::try_again) {
    Read();
    return;
  }
  if (error == asio::error::eof && (phase_ == Phase::kHeader || phase_ == Phase::kBody)) {
    // It may still read: a sender that was cut short hears why.
    Refuse(400, "the request ended before it was complete");
    return;
  }
  if (error) {
    Close(CancelReason::kClientGone);
    return;
  }
  if (phase_ != Phase::kLinger) {
    input_.append(scratch.data(), count);
    Parse();
  }
  Read();
}

void HttpConnection::Parse() {
  if (parsing_) return;  // a handler answered at once: the loop below goes on
  parsing_ = true;
  while (ParseSome()) {
  }
  parsing_ = false;
  if (input_at_ == input_.size()) {
    input_.clear();
    input_at_ = 0;
  } else if (input_at_ > kInputBytesMax / 2) {
    input_.erase(0, input_at_);
    input_at_ = 0;
  }
}

bool HttpConnection::ParseSome() {
  if (phase_ != Phase::kIdle && phase_ != Phase::kHeader && phase_ != Phase::kBody) return false;
  const HttpLimits& limits = worker_->shared().limits;
  if (phase_ == Phase::kIdle) {
    // Empty lines between requests are allowed (RFC 9112, 2.2).
    while (input_at_ < input_.size() && (input_[input_at_] == '\r' || input_[input_at_] == '\n')) {
      ++input_at_;
    }
  }
  if (input_at_ == input_.size()) return false;
  if (phase_ == Phase::kIdle) {
    path_.clear();
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits.header_bytes_max));
    parser_->body_limit(limits.body_bytes_max);
    parser_->eager(true);
    header_seen_ = false;
    Enter(Phase::kHeader, limits.header_timeout_us);
  }
  error_code error;
  input_at_ +=
      parser_->put(asio::const_buffer(input_.data() + input_at_, input_.size() - input_at_), error);
  const bool need_more = error == http::error::need_more;
  if (error && !need_more) {
    OnParseError(error);
    return false;
  }
  if (parser_->is_header_done()) {
    if (!header_seen_) OnHeader();
    if (phase_ == Phase::kClosed || phase_ == Phase::kLinger || phase_ == Phase::kBusy) {
      return false;
    }
    Enter(Phase::kBody, limits.body_timeout_us);
  }
  if (parser_->is_done()) {
    Dispatch();
    return true;
  }
  return !need_more;
}

void HttpConnection::OnHeader() {
  header_seen_ = true;
  const auto& message = parser_->get();
  if (message.version() < 11) return;
  if (message.count(http::field::host) != 1) {  // RFC 9112, 3.2
    Refuse(400, "an HTTP/1.1 request has one Host header");
    return;
  }
  const absl::string_view expect = View(message[http::field::expect]);
  if (expect.empty()) return;
  if (!absl::EqualsIgnoreCase(expect, "100-continue")) {
    Refuse(417, "the only expectation served is 100-continue");
    return;
  }
  if (parser_->is_done()) return;
  output_ += "HTTP/1.1 100 Continue\r\n\r\n";
  Flush();
}

void HttpConnection::OnParseError(error_code error) {
  if (error == http::error::header_limit) {
    Refuse(431, absl::StrCat("the header is longer than ",
                             worker_->shared().limits.header_bytes_max, " bytes"));
  } else if (error == http::error::body_limit) {
    Refuse(413, absl::StrCat("the body is longer than ", worker_->shared().limits.body_bytes_max,
                             " bytes"));
  } else if (error == http::error::bad_version) {
    Refuse(505, "the HTTP version is not 1.0 or 1.1");
  } else {
    Refuse(400, absl::StrCat("malformed HTTP: ", error.message()));
  }
}

// -- Answering -----------------------------------------------------------------------------------

void HttpConnection::Dispatch() {
  auto message = parser_->release();
  parser_.reset();
  http_1_1_ = message.version() >= 11;
  keep_alive_ = message.keep_alive() && !worker_->shared().draining.load();
  HttpRequest request;
  request.method = MethodOf(message.method());
  head_only_ = request.method == HttpMethod::kHead;
  absl::string_view target = View(message.target());
  request.path = std::string(target.substr(0, target.find('?')));
  path_ = request.path;
  request.body = std::move(message.body());
  const absl::string_view id = View(message["x-request-id"]);
  request.request_id = IsRequestId(id) ? std::string(id) : NewRequestId();
  request_id_ = request.request_id;
  Enter(Phase::kBusy, 0);

  const HttpRouter::Match match = routes_->Find(request.method, request.path);
  route_ = match.route;
  if (match.handler == nullptr) {
    const bool known = !match.allow.empty();
    HttpReply reply =
        TransportError(path_, known ? 405 : 404,
                       known ? absl::StrCat("this path takes ", match.allow) : "no such path");
    if (known) reply.headers.emplace_back("allow", match.allow);
    Reply(std::move(reply));
    return;
  }
  std::shared_ptr<HttpExchange> exchange =
      (*match.handler)(std::move(request), *this, worker_->waker());
  // Not busy: it was answered at once, and the connection may even be gone.
  if (phase_ == Phase::kBusy && !finishing_) exchange_ = std::move(exchange);
}

void HttpConnection::Refuse(int status, absl::string_view message) {
  keep_alive_ = false;
  head_only_ = false;
  http_1_1_ = true;
  route_ = "other";
  // Of what has been read so far: empty while it is not known.
  if (parser_.has_value()) path_ = std::string(View(parser_->get().target()));
  parser_.reset();
  request_id_ = NewRequestId();
  Enter(Phase::kBusy, 0);
  Reply(TransportError(path_, status, message));
}

void HttpConnection::AppendHead(const HttpReply& reply, absl::string_view framing) {
  worker_->shared().probe->HttpHandled(route_, reply.status);
  if (worker_->shared().draining.load()) keep_alive_ = false;
  absl::StrAppend(&output_, "HTTP/1.1 ", reply.status, " ", HttpReason(reply.status),
                  "\r\nserver: weft/", Version(), "\r\ndate: ",
                  absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
                  "\r\nx-request-id: ", request_id_, "\r\n");
  if (!reply.content_type.empty()) {
    absl::StrAppend(&output_, "content-type: ", reply.content_type, "\r\n");
  }
  for (const auto& [name, value] : reply.headers) {
    absl::StrAppend(&output_, name, ": ", value, "\r\n");
  }
  if (!keep_alive_) {
    output_ += "connection: close\r\n";
  } else if (!http_1_1_) {
    output_ += "connection: keep-alive\r\n";
  }
  absl::StrAppend(&output_, framing, "\r\n");
}

void HttpConnection::Reply(HttpReply reply) {
  if (phase_ != Phase::kBusy || finishing_) return;
  AppendHead(reply, absl::StrCat("content-length: ", reply.body.size(), "\r\n"));
  if (!head_only_) output_ += reply.body;
  FinishResponse();
}

void HttpConnection::BeginStream(HttpReply head) {
  if (phase_ != Phase::kBusy || finishing_) return;
  chunked_ = http_1_1_;
  if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection ends the body
  AppendHead(head, chunked_ ? "transfer-encoding: chunked\r\n" : "");
}

void HttpConnection::Write(absl::string_view bytes) {
  if (phase_ != Phase::kBusy || finishing_ || bytes.empty()) return;
  if (!chunked_) {
    absl::StrAppend(&output_, bytes);
    return;
  }
  absl::StrAppend(&output_, absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

void HttpConnection::EndStream() {
  if (phase_ != Phase::kBusy || finishing_) return;
  if (chunked_) output_ += "0\r\n\r\n";
  FinishResponse();
}

void HttpConnection::FinishResponse() {
  finishing_ = true;
  exchange_.reset();
  Flush();
}

void HttpConnection::Flush() {
  if (phase_ == Phase::kClosed || waiting_write_) return;
  while (output_at_ < output_.size()) {
    error_code error;
    const size_t count = socket_.write_some(
        asio::buffer(output_.data() + output_at_, output_.size() - output_at_), error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      waiting_write_ = true;
      if (accepted_us_ == 0) accepted_us_ = NowUs();
      socket_.async_wait(asio::ip::tcp::socket::wait_write,
                         [self = shared_from_this()](error_code wait_error) {
                           self->waiting_write_ = false;
                           if (wait_error || self->phase_ == Phase::kClosed) return;
                           self->Flush();
                           const std::shared_ptr<HttpExchange> exchange = self->exchange_;
                           if (exchange != nullptr && self->writable()) exchange->OnWake();
                         });
      return;
    }
    if (error) {
      Close(CancelReason::kClientGone);
      return;
    }
    output_at_ += count;
    accepted_us_ = NowUs();
  }
  output_.clear();
  output_at_ = 0;
  accepted_us_ = 0;
  if (finishing_) NextRequest();
}

void HttpConnection::NextRequest() {
  finishing_ = false;
  if (!keep_alive_) {
    Linger();
    return;
  }
  Enter(Phase::kIdle, worker_->shared().limits.idle_timeout_us);
  if (parsing_) return;
  Parse();
  Read();
}

void HttpConnection::Linger() {
  // Closing with unread input would reset the connection and could take the answer with it: say
  // that no more comes, and read on until the client closes.
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  Enter(Phase::kLinger, worker_->shared().limits.linger_timeout_us);
  input_.clear();
  input_at_ = 0;
  Read();
}

void HttpConnection::Close(CancelReason reason) {
  if (phase_ == Phase::kClosed) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  Enter(Phase::kClosed, 0);
  if (exchange_ != nullptr) {
    const std::shared_ptr<HttpExchange> exchange = std::move(exchange_);
    exchange->OnGone(reason);
  }
  error_code error;
  socket_.close(error);
  worker_->Remove(self);
}

}  // namespace weft::router
