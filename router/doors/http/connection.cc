#include "router/doors/http/connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/post.hpp"
#include "common/clock.h"
#include "router/doors/access_log.h"
#include "router/doors/http/body_headers.h"
#include "router/doors/http/buffers.h"
#include "router/doors/http/replies.h"
#include "router/doors/identity/key_file.h"

namespace weft::router {
namespace {

using boost::system::error_code;

constexpr absl::string_view kSpeakTls =
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n"
    "content-length: 49\r\n\r\nThis port speaks TLS: use https:// in the address";

// A read buffer up to so large stays with a connection.
constexpr size_t kSmallBufferBytes = 1024;

int64_t NowUs() { return MonotonicClock().NowUs(); }

// The refusal of a page whose origin is not listed, with the way out.
std::string OriginRefusal(const std::string& origin, OriginOwner owner) {
  const std::string page = origin.substr(0, 256);
  if (owner == OriginOwner::kOwnByNameAlone) {
    return absl::StrCat(
        "the page was opened under a name, which another site could have chosen; "
        "open it by address, or start the server with --cors-origins=",
        page, " or with TLS");
  }
  return absl::StrCat("pages of the origin `", page,
                      "` may not call this server; --cors-origins lists those that may");
}

}  // namespace

HttpConnection::HttpConnection(boost::asio::ip::tcp::socket socket,
                               std::shared_ptr<SSL_CTX> context, HttpWorker* worker,
                               const HttpRouter* routes, bool admin)
    : socket_(std::move(socket), std::move(context)),
      worker_(worker),
      routes_(routes),
      admin_(admin),
      reader_({worker->shared().limits.header_bytes_max, worker->shared().limits.body_bytes_max},
              worker->shared().bodies) {
  worker_->shared().open[admin_].fetch_add(1);
  worker_->shared().probe->HttpConnections(1);
}

HttpConnection::~HttpConnection() {
  worker_->shared().open[admin_].fetch_sub(1);
  if (turned_away_) worker_->shared().turned_away[admin_].fetch_sub(1);
  worker_->shared().probe->HttpConnections(-1);
}

void HttpConnection::Start() {
  HttpShared& shared = worker_->shared();
  socket_.SetNonBlocking();
  peer_ = socket_.PeerName();
  // A client has to say something soon after it connects.
  if (!socket_.tls()) {
    Enter(Phase::kIdle, shared.limits.header_timeout_us);
    Read();
    return;
  }
  // The oldest handshake gives way: one that takes its time is more likely to be none.
  const auto handshakes_max = static_cast<int64_t>(shared.limits.handshakes_max);
  const bool room =
      shared.handshakes.load() < handshakes_max || worker_->EndOldestHandshake(admin_);
  Enter(Phase::kHandshake, shared.limits.header_timeout_us);
  if (room) {
    Read();
  } else {
    Close(CancelReason::kClientGone);
  }
}

void HttpConnection::TurnAway() {
  turned_away_ = true;
  worker_->shared().turned_away[admin_].fetch_add(1);
  socket_.SetNonBlocking();
  peer_ = socket_.PeerName();
  if (socket_.tls()) {
    Close(CancelReason::kClientGone);  // a handshake is more than it can have
  } else {
    Refuse({503, "too many connections", 1});
  }
}

WaitingFor HttpConnection::PlaceOf(Phase phase) const {
  switch (phase) {
    case Phase::kHandshake:
      return WaitingFor::kHandshake;
    case Phase::kIdle:
    case Phase::kHeader:
      return served_ ? WaitingFor::kRequest : WaitingFor::kStranger;
    case Phase::kBody:
      return WaitingFor::kBody;
    case Phase::kLinger:
      // To close one that has no place of its own would make no room.
      return turned_away_ ? WaitingFor::kNothing : WaitingFor::kClose;
    case Phase::kBusy:
    case Phase::kClosed:
      break;
  }
  return WaitingFor::kNothing;
}

void HttpConnection::Enter(Phase phase, int64_t timeout_us) {
  HttpShared& shared = worker_->shared();
  const auto count = [&](Phase counted, std::atomic<int64_t>& counter) {
    if ((phase_ == counted) != (phase == counted)) counter.fetch_add(phase == counted ? 1 : -1);
  };
  count(Phase::kBusy, shared.busy);
  count(Phase::kHandshake, shared.handshakes);
  phase_ = phase;
  const int64_t now_us = NowUs();
  deadline_us_ = timeout_us == 0 ? 0 : now_us + timeout_us;
  worker_->waiting(admin_).Put(this, PlaceOf(phase), now_us);
  if (phase == Phase::kBody) {
    body_pace_.Start(now_us, 0);
  } else {
    body_pace_.Stop();
  }
  if (phase == Phase::kBusy) spoken_us_ = now_us;
}

bool HttpConnection::HasTooSlowPeer(int64_t now_us) {
  const HttpLimits& limits = worker_->shared().limits;
  return reader_pace_.running() &&
         !reader_pace_.Check(now_us, socket_.acknowledged_bytes(),
                             {limits.slow_reader_timeout_us, limits.reader_window_us,
                              limits.reader_window_bytes_min});
}

// A request is under way: is its client still there, and has it heard of us of late?
void HttpConnection::CheckClient(int64_t now_us) {
  if (ended_ || !reading_) {
    const HttpSocket::Peer peer = socket_.CheckPeer();
    if (peer == HttpSocket::Peer::kGone) {
      Close(CancelReason::kClientGone);
      return;
    }
    if (peer == HttpSocket::Peer::kHalfClosed && !probed_) {
      ProbeClient();
      if (phase_ != Phase::kBusy) return;
    }
  }
  if (exchange_ == nullptr || waiting_write_) return;
  if (now_us - spoken_us_ < worker_->shared().limits.silence_us) return;
  spoken_us_ = now_us;
  const std::shared_ptr<HttpExchange> exchange = exchange_;
  exchange->OnSilence();
}

CancelReason HttpConnection::WhyLost() const {
  const bool waited = reader_pace_.running() && socket_.timed_out();
  return waited ? CancelReason::kSlowReader : CancelReason::kClientGone;
}

void HttpConnection::CheckDeadline(int64_t now_us) {
  if (phase_ == Phase::kClosed) return;
  if (HasTooSlowPeer(now_us)) {
    Close(CancelReason::kSlowReader);
    return;
  }
  if (phase_ == Phase::kBusy) {
    CheckClient(now_us);
    return;
  }
  const HttpLimits& limits = worker_->shared().limits;
  const bool slow = !body_pace_.Check(now_us, reader_.body_bytes(),
                                      {0, limits.body_window_us, limits.body_window_bytes_min});
  if (!slow && (deadline_us_ == 0 || now_us < deadline_us_)) return;
  if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    Refuse({408, slow ? "the body arrives too slowly" : "the request did not arrive in time"});
  } else {
    Close(CancelReason::kClientGone);
  }
}

// -- Reading -------------------------------------------------------------------------------------

size_t HttpConnection::InputRoom() const {
  if (phase_ == Phase::kLinger) return kInputBytesMax;
  const size_t limit = phase_ == Phase::kBusy ? kPipelinedBytesMax : kInputBytesMax;
  return limit - std::min(limit, input_.size() - input_at_);
}

void HttpConnection::Read() {
  if (reading_ || ended_ || phase_ == Phase::kClosed || InputRoom() == 0) return;
  reading_ = true;
  auto done = [self = shared_from_this()](error_code error) {
    self->reading_ = false;
    if (error) {
      self->Close(CancelReason::kClientGone);
    } else {
      self->OnReadable();
    }
  };
  if (socket_.buffered()) {
    // Others get their turn before it goes on.
    boost::asio::post(socket_.executor(), [done = std::move(done)] { done(error_code()); });
  } else {
    socket_.WaitReadable(std::move(done));
  }
}

void HttpConnection::OnReadable() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kHandshake) {
    Handshake();
    return;
  }
  auto& scratch = worker_->scratch();
  size_t count = 0;
  switch (socket_.Read(scratch.data(), std::min(InputRoom(), scratch.size()), &count)) {
    case SocketIo::kBlocked:
      break;
    case SocketIo::kDone:
      if (phase_ == Phase::kLinger) break;  // what comes after the last answer is dropped
      input_.append(scratch.data(), count);
      Parse();
      break;
    case SocketIo::kEnd:
      OnEnd();
      return;
    case SocketIo::kFailed:
      Close(WhyLost());
      return;
  }
  Read();
}

void HttpConnection::OnEnd() {
  ended_ = true;
  if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
    // It may still read: a sender that was cut short hears why.
    Refuse({400, "the request ended before it was complete"});
  } else if (phase_ == Phase::kBusy) {
    ProbeClient();
  } else {
    Close(CancelReason::kClientGone);
  }
}

void HttpConnection::Handshake() {
  bool wants_write = false;
  switch (socket_.Handshake(&wants_write)) {
    case SocketIo::kDone:
      client_subject_ = socket_.ClientSubject();
      Enter(Phase::kIdle, worker_->shared().limits.header_timeout_us);
      Read();
      return;
    case SocketIo::kBlocked:
      if (!wants_write) {
        Read();
        return;
      }
      reading_ = true;  // the handshake goes on when its answer can leave
      socket_.WaitWritable([self = shared_from_this()](error_code error) {
        self->reading_ = false;
        if (!error && self->phase_ == Phase::kHandshake) self->Handshake();
      });
      return;
    case SocketIo::kEnd:
      break;
    case SocketIo::kFailed:
      if (!socket_.plain_client()) break;
      socket_.WritePlain(kSpeakTls.data(), kSpeakTls.size());
      Linger();
      return;
  }
  Close(CancelReason::kClientGone);
}

void HttpConnection::Parse() {
  if (parsing_) return;  // a handler answered at once: the loop below goes on
  parsing_ = true;
  while (ParseOnce()) {
  }
  parsing_ = false;
  if (input_at_ == input_.size()) {
    input_.clear();
    if (input_.capacity() > kSmallBufferBytes) GiveBack(&input_);
    input_at_ = 0;
  } else if (input_at_ > kInputBytesMax / 2) {
    input_.erase(0, input_at_);
    input_at_ = 0;
  }
}

bool HttpConnection::ParseOnce() {
  const bool reads = phase_ == Phase::kIdle || phase_ == Phase::kHeader || phase_ == Phase::kBody;
  // The end of a body without bytes comes with no input.
  if (!reads || (input_at_ == input_.size() && phase_ != Phase::kBody)) return false;
  absl::string_view input = absl::string_view(input_).substr(input_at_);
  const RequestReader::Event event = reader_.Next(&input);
  input_at_ = input_.size() - input.size();
  switch (event) {
    case RequestReader::Event::kMore:
      if (phase_ == Phase::kIdle && reader_.stage() == RequestReader::Stage::kHead) {
        Enter(Phase::kHeader, worker_->shared().limits.header_timeout_us);
      }
      return false;
    case RequestReader::Event::kHead:
      OnHead();
      return true;
    case RequestReader::Event::kRequest:
      Dispatch();
      return true;
    case RequestReader::Event::kRefused:
      Refuse(reader_.refusal());
      return false;
  }
  return false;
}

void HttpConnection::OnHead() {
  const HttpShared& shared = worker_->shared();
  const RequestHead& head = reader_.head();
  path_ = head.path;
  Enter(Phase::kBody, shared.limits.body_timeout_us);
  std::optional<HttpReply> refusal = CheckHead(head);
  if (refusal.has_value()) {
    RefuseHead(*std::move(refusal));
    return;
  }
  if (head.has_body()) reader_.SetOwner(&worker_->shared().body_shares, BodyOwner());
  if (!head.expect_continue || !head.has_body() || input_at_ < input_.size()) return;
  output_ += "HTTP/1.1 100 Continue\r\n\r\n";
  Flush();
}

std::optional<HttpReply> HttpConnection::CheckHead(const RequestHead& head) {
  const OriginPolicy& origins = worker_->shared().origins;
  const HttpRouter::Match match = routes_->Find(head.method, path_);
  route_ = match.route;
  handler_ = match.handler;
  allow_ = match.allow;
  if (!head.origin.empty()) {
    const bool listed = origins.Allows(head.origin);
    const OriginOwner owner = worker_->shared().own_page && !admin_
                                  ? OwnOrigin(head.origin, head.host, head.port, socket_.tls())
                                  : OriginOwner::kOther;
    // What a page under this server's name reads it may read without an Origin as well, which
    // browsers leave out of most of its reads (not out of those of scripts that are modules).
    const bool reads = head.method == HttpMethod::kGet || head.method == HttpMethod::kHead;
    const bool own = owner == OriginOwner::kOwn || (owner != OriginOwner::kOther && reads);
    if (!listed && !own) {
      return TransportError(path_, 403, OriginRefusal(head.origin, owner));
    }
    // A page needs no leave to read what its own server answers.
    if (listed) origin_lines_ = origins.AnswerLines(head.origin);
  }
  if (handler_ == nullptr) return CheckMethod(head);
  if (std::optional<HttpReply> refusal = CheckBodyHeaders(head)) return refusal;
  if (*match.gate == nullptr) return std::nullopt;
  absl::StatusOr<TenantRef> tenant = (*match.gate)(head.authorization, head.api_key);
  if (!tenant.ok()) return TransportError(path_, tenant.status());
  tenant_ = *std::move(tenant);
  return std::nullopt;
}

std::string HttpConnection::BodyOwner() const {
  if (tenant_ != nullptr && tenant_->name != kAnonymousTenant) {
    return absl::StrCat("tenant ", tenant_->name);
  }
  return absl::StrCat("address ", peer_.substr(0, peer_.rfind(':')));
}

std::optional<HttpReply> HttpConnection::CheckMethod(const RequestHead& head) const {
  const bool known = !allow_.empty();
  if (head.method == HttpMethod::kOptions && (known || path_ == "*")) return std::nullopt;
  HttpReply reply = TransportError(
      path_, known ? 405 : 404, known ? absl::StrCat("this path takes ", allow_) : "no such path");
  if (known) reply.headers.emplace_back("allow", allow_);
  return reply;
}

void HttpConnection::Close(CancelReason reason) {
  if (phase_ == Phase::kClosed) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  Enter(Phase::kClosed, 0);
  if (exchange_ != nullptr) exchange_->OnGone(reason);
  LogRequest(CancelReasonName(reason));
  exchange_.reset();
  reader_.Begin();
  socket_.Close();
  worker_->Remove(self);
}

}  // namespace weft::router
