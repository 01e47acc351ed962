// What connections and routes say to each other: a parsed request, a reply, the responder that a
// route answers through and the exchange that a connection keeps while an answer is being made. No
// Boost in here: routes are compiled without Beast. All of it lives on the connection's io_context
// thread; other threads reach an exchange only through its IoWaker.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "router/doors/http/body_budget.h"
#include "router/request.h"
#include "router/tenants/tenant.h"
#include "router/waker.h"

namespace weft::router {

enum class HttpMethod : uint8_t { kGet, kHead, kPost, kOptions, kOther };

// Strings of fields that the client did not send are empty.
struct HttpRequest {
  HttpMethod method = HttpMethod::kGet;
  // Without the query, percent-encoding as it came.
  std::string path;
  std::string query;
  std::string body;
  // The body's bytes in the budget of all bodies; they come back with the request's end, so that a
  // handler that keeps the body keeps its charge too.
  BodyCharge charge;
  // The client's x-request-id when it is a good one, else made here.
  std::string request_id;
  // "ip:port" of the other end, an IPv6 address in brackets.
  std::string peer;
  // The connection is encrypted; the subject of the client's certificate when it showed one that
  // was verified (RFC 2253).
  bool tls = false;
  std::string client_subject;
  // Whom the key belongs to, on routes that ask for one; null on others. The key itself stays with
  // the head.
  TenantRef tenant;
  std::string content_type;
  // As the client names this server, without the port.
  std::string host;
  std::string if_none_match;
  std::string origin;
  std::string traceparent;
};

struct AccessRecord;  // router/doors/access_log.h

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
  int status = 200;
  absl::string_view content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// A connection, as a route sees it. Either one Reply, or BeginStream, Writes and
// EndStream.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  virtual void Reply(HttpReply reply) = 0;
  // Sends status and headers of `head`, whose body is left out.
  virtual void BeginStream(HttpReply head) = 0;
  // Queues bytes; Flush and EndStream send what the socket takes, all of it in one write.
  virtual void Write(absl::string_view bytes) = 0;
  virtual void Flush() = 0;
  virtual void EndStream() = 0;
  // False while so much is unsent that the caller should keep its events.
  virtual bool writable() const = 0;
};

// An answer in the making, held by its connection and by whoever makes it.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Something may be ready: events came, or the connection is writable again.
  virtual void OnWake() = 0;
  // Nothing was written for HttpLimits::silence_us; called again after each such time. A stream
  // sends its headers and a comment, so that no proxy takes it for dead. May find the client gone.
  virtual void OnSilence() {}
  // The connection is gone, or its client does not read: no call of the responder from here on.
  virtual void OnGone(CancelReason reason) = 0;
  // Adds what is known of the request to its line in the access log. The last call.
  virtual void Describe(AccessRecord*) const {}
  // After OnGone, in place of Describe: true when the exchange has taken the line, which it logs
  // once it knows how far the answer came.
  virtual bool LogLater(const AccessRecord&) { return false; }
};

// Collects the exchanges of one io_context that have news and wakes it once for all of them (one
// wake-up per batch of events). Any thread. Must outlive all who may call Wake.
class IoWaker : public Waker {
 public:
  // `post` makes the io_context's thread call Drain() soon.
  explicit IoWaker(std::function<void()> post) : post_(std::move(post)) {}

  void Add(std::shared_ptr<HttpExchange> exchange) {
    absl::MutexLock lock(&mutex_);
    dirty_.push_back(std::move(exchange));
  }

  void Wake() override {
    if (!posted_.exchange(true, std::memory_order_acq_rel)) post_();
  }

  // The io_context's thread only.
  void Drain() {
    posted_.store(false, std::memory_order_release);
    {
      absl::MutexLock lock(&mutex_);
      draining_.swap(dirty_);
    }
    for (const std::shared_ptr<HttpExchange>& exchange : draining_) exchange->OnWake();
    draining_.clear();
  }

 private:
  const std::function<void()> post_;
  std::atomic<bool> posted_{false};
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> dirty_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<HttpExchange>> draining_;
};

// Who asks, by `authorization` and `x-api-key` of a request's head; UNAUTHENTICATED without a good
// key where keys are wanted. Asked before a byte of the body is read.
using HttpGate = std::function<absl::StatusOr<TenantRef>(const std::string& authorization,
                                                         const std::string& api_key)>;

// Answers a request: at once through `responder` (then returns null), or later through the exchange
// returned. The exchange may use `responder` until its OnGone, `waker` for ever.
using HttpHandler = std::function<std::shared_ptr<HttpExchange>(
    HttpRequest request, HttpResponder& responder, IoWaker& waker)>;

}  // namespace weft::router
