#include "router/doors/http/connection.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/version.h"
#include "router/doors/access_log.h"
#include "router/doors/door_context.h"
#include "router/doors/http/buffers.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

using boost::system::error_code;

// Every token of a stream is a chunk of its own, so this is written by hand.
void AppendChunk(absl::string_view bytes, std::string* out) {
  char head[2 * sizeof(size_t) + 2];
  char* const end = head + sizeof(head);
  char* begin = end;
  *--begin = '\n';
  *--begin = '\r';
  for (size_t left = bytes.size(); left > 0; left >>= 4) *--begin = "0123456789abcdef"[left & 15];
  out->append(begin, end - begin);
  out->append(bytes.data(), bytes.size());
  out->append("\r\n");
}

}  // namespace

void HttpConnection::BeginAnswer() {
  const RequestHead& head = reader_.head();
  http_1_1_ = head.http_1_1;
  keep_alive_ = head.keep_alive && !worker_->shared().draining.load();
  head_only_ = head.method == HttpMethod::kHead;
  request_id_ = IsRequestId(head.request_id) ? head.request_id : NewRequestId();
  if (IsTraceparent(head.traceparent)) traceparent_ = head.traceparent;
  request_us_ = MonotonicClock().NowUs();
}

void HttpConnection::Dispatch() {
  RequestHead& head = reader_.head();
  served_ = true;
  BeginAnswer();
  HttpRequest request;
  request.method = head.method;
  request.path = path_;
  request.query = std::move(head.query);
  request.body = reader_.TakeBody();
  request.charge = reader_.TakeCharge();
  request.request_id = request_id_;
  request.peer = peer_;
  request.tls = socket_.tls();
  request.client_subject = client_subject_;
  request.tenant = tenant_;
  request.content_type = std::move(head.content_type);
  request.host = std::move(head.host);
  request.if_none_match = std::move(head.if_none_match);
  request.origin = std::move(head.origin);
  request.traceparent = std::move(head.traceparent);
  Enter(Phase::kBusy, 0);
  if (handler_ == nullptr) {
    AnswerOptions(request);
    return;
  }
  std::shared_ptr<HttpExchange> exchange = (*handler_)(std::move(request), *this, worker_->waker());
  // Not busy: it was answered at once, and the connection may even be gone.
  if (phase_ == Phase::kBusy && !finishing_) exchange_ = std::move(exchange);
}

void HttpConnection::AnswerOptions(const HttpRequest& request) {
  const std::string methods =
      allow_.empty() ? "GET, HEAD, POST, OPTIONS" : absl::StrCat(allow_, ", OPTIONS");
  HttpReply reply;
  reply.status = 204;
  reply.content_type = "";
  reply.headers.emplace_back("allow", methods);
  if (!request.origin.empty() && !reader_.head().preflight_method.empty()) {
    OriginPolicy::AddPreflight(methods, reader_.head().preflight_headers, &reply.headers);
  }
  Reply(std::move(reply));
}

void HttpConnection::RefuseHead(HttpReply reply) {
  BeginAnswer();
  // A body that is here already is dropped; one that is not is not waited for.
  const RequestHead& head = reader_.head();
  if (!head.chunked && head.content_length <= input_.size() - input_at_) {
    input_at_ += static_cast<size_t>(head.content_length);
  } else {
    keep_alive_ = false;
  }
  reader_.Begin();
  Enter(Phase::kBusy, 0);
  Reply(std::move(reply));
}

void HttpConnection::Refuse(const HttpRefusal& refusal) {
  keep_alive_ = false;
  head_only_ = false;
  http_1_1_ = true;
  route_ = "other";
  // Of what has been read so far: empty while it is not known.
  const std::string path =
      reader_.stage() == RequestReader::Stage::kIdle ? "" : reader_.head().path;
  refused_route_ = RouteOf(path);
  HttpReply reply = TransportError(path, refusal.status, refusal.message);
  if (refusal.retry_after_s > 0) {
    reply.headers.emplace_back("retry-after", absl::StrCat(refusal.retry_after_s));
  }
  reader_.Begin();
  request_id_ = NewRequestId();
  request_us_ = MonotonicClock().NowUs();
  Enter(Phase::kBusy, 0);
  Reply(std::move(reply));
}

absl::string_view HttpConnection::RouteOf(const std::string& path) const {
  const absl::string_view route = path.empty() ? "-" : routes_->Find(HttpMethod::kGet, path).route;
  return route == "other" ? "-" : route;
}

void HttpConnection::AppendHead(const HttpReply& reply, absl::string_view framing) {
  answering_ = true;
  status_ = reply.status;
  worker_->shared().probe->HttpHandled(route_, reply.status);
  if (worker_->shared().draining.load()) keep_alive_ = false;
  absl::StrAppend(&output_, "HTTP/1.1 ", reply.status, " ", HttpReason(reply.status),
                  "\r\nserver: weft/", Version(), "\r\ndate: ",
                  absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
                  "\r\nx-request-id: ", request_id_, "\r\n", origin_lines_);
  if (!traceparent_.empty()) absl::StrAppend(&output_, "traceparent: ", traceparent_, "\r\n");
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
  // And without a length (RFC 9110, 8.6).
  const bool bodyless = reply.status == 204 || reply.status == 304;
  AppendHead(reply, bodyless ? "" : absl::StrCat("content-length: ", reply.body.size(), "\r\n"));
  if (!head_only_ && !bodyless) output_ += reply.body;
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
  wrote_ = true;
  if (!chunked_) {
    absl::StrAppend(&output_, bytes);
    return;
  }
  AppendChunk(bytes, &output_);
}

void HttpConnection::EndStream() {
  if (phase_ != Phase::kBusy || finishing_) return;
  if (chunked_) output_ += "0\r\n\r\n";
  FinishResponse();
}

void HttpConnection::FinishResponse() {
  finishing_ = true;
  Flush();  // the exchange, and with it its permit, stays until the last byte is taken
}

void HttpConnection::Flush() {
  if (phase_ == Phase::kClosed || waiting_write_) return;
  while (output_at_ < output_.size()) {
    size_t count = 0;
    const SocketIo result =
        socket_.Write(output_.data() + output_at_, output_.size() - output_at_, &count);
    if (result == SocketIo::kBlocked) {
      waiting_write_ = true;
      if (!reader_pace_.running()) {
        reader_pace_.Start(MonotonicClock().NowUs(), socket_.acknowledged_bytes());
      }
      socket_.WaitWritable([self = shared_from_this()](error_code error) {
        self->waiting_write_ = false;
        if (error || self->phase_ == Phase::kClosed) return;
        self->Flush();
        const std::shared_ptr<HttpExchange> exchange = self->exchange_;
        if (exchange != nullptr && self->writable()) exchange->OnWake();
      });
      return;
    }
    if (result != SocketIo::kDone) {
      Close(WhyLost());
      return;
    }
    output_at_ += count;
  }
  output_.clear();
  output_at_ = 0;
  reader_pace_.Stop();
  spoken_us_ = MonotonicClock().NowUs();
  if (finishing_) NextRequest();
}

void HttpConnection::ProbeClient() {
  probed_ = true;
  if (waiting_write_) return;  // what waits will tell
  if (answering_ && exchange_ != nullptr) {
    const std::shared_ptr<HttpExchange> exchange = exchange_;
    wrote_ = false;
    exchange->OnSilence();
    if (wrote_ || phase_ != Phase::kBusy) return;
  }
  if (answering_ || !http_1_1_) {
    Close(CancelReason::kClientGone);
    return;
  }
  output_ += "HTTP/1.1 100 Continue\r\n\r\n";
  Flush();
}

void HttpConnection::LogRequest(absl::string_view cause) {
  if (request_us_ == 0) return;  // none is under way, or it is logged already
  AccessRecord record;
  record.cause = cause;
  record.correlation_id = request_id_;
  if (tenant_ != nullptr) record.tenant = tenant_->name;
  record.client = peer_;
  record.traceparent = traceparent_;
  record.door = "http";
  record.route = refused_route_.empty() ? route_ : refused_route_;
  if (answering_) record.status = absl::StrCat(status_);
  record.total_us = MonotonicClock().NowUs() - std::exchange(request_us_, 0);
  if (exchange_ != nullptr) {
    if (!cause.empty() && exchange_->LogLater(record)) return;
    exchange_->Describe(&record);
  }
  // Probes and scrapes come every few seconds, and a page in many files: they are not worth a line
  // of their own.
  LogAccess(record, /*quiet=*/exchange_ == nullptr && (status_ == 200 || status_ == 304));
}

void HttpConnection::NextRequest() {
  LogRequest("");
  exchange_.reset();
  tenant_.reset();
  traceparent_.clear();
  finishing_ = false;
  answering_ = false;
  GiveBack(&origin_lines_);
  GiveBack(&allow_);
  GiveBack(&path_);
  if (!keep_alive_) {
    Linger();
    return;
  }
  // What the answer took is given back: an idle connection costs little.
  GiveBack(&output_);
  reader_.Begin();
  Enter(Phase::kIdle, worker_->shared().limits.idle_timeout_us);
  if (parsing_) return;
  Parse();
  if (ended_ && phase_ != Phase::kBusy && phase_ != Phase::kClosed) {
    OnEnd();
    return;
  }
  Read();
}

void HttpConnection::Linger() {
  // Closing with unread input would reset the connection and could take the answer with it: say
  // that no more comes, and read on until the client closes.
  socket_.ShutdownSend();
  Enter(Phase::kLinger, worker_->shared().limits.linger_timeout_us);
  GiveBack(&output_);
  GiveBack(&input_);
  input_at_ = 0;
  reader_.Begin();
  if (ended_) {
    Close(CancelReason::kClientGone);
    return;
  }
  Read();
}

}  // namespace weft::router
