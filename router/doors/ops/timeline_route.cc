#include "router/doors/ops/timeline_route.h"

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "router/doors/http/replies.h"
#include "router/doors/ops/own_host.h"
#include "router/observe/timeline_json.h"

namespace weft::router {
namespace {

constexpr uint32_t kSecondsDefault = 5;
constexpr uint32_t kSecondsMax = 60;
constexpr size_t kPieceBytes = 64u << 10;

absl::StatusOr<uint32_t> ReadSeconds(absl::string_view query) {
  if (query.empty()) return kSecondsDefault;
  uint32_t seconds = 0;
  const bool good = absl::ConsumePrefix(&query, "seconds=") && absl::SimpleAtoi(query, &seconds);
  if (good && seconds >= 1 && seconds <= kSecondsMax) return seconds;
  return absl::InvalidArgumentError(
      absl::StrCat("the query may be seconds=N with N in 1 .. ", kSecondsMax));
}

}  // namespace

// The bytes of one timeline on their way from its thread to its reader's connection.
class TimelineExchange : public HttpExchange,
                         public std::enable_shared_from_this<TimelineExchange> {
 public:
  TimelineExchange(HttpResponder* responder, IoWaker* waker)
      : waker_(waker), responder_(responder) {}

  // -- Connection's thread
  void OnWake() override {
    if (responder_ == nullptr || !responder_->writable()) return;
    std::string piece;
    bool ended = false;
    {
      absl::MutexLock lock(&mutex_);
      piece.swap(piece_);
      ended = ended_;
    }
    if (piece.empty()) return;
    if (!std::exchange(begun_, true)) responder_->BeginStream(HttpReply());
    responder_->Write(piece);
    if (ended) {
      std::exchange(responder_, nullptr)->EndStream();
    } else {
      responder_->Flush();  // may find the client gone
    }
  }

  // White space between two values: a minute is long for whoever counts silence.
  void OnSilence() override {
    if (responder_ == nullptr || !begun_) return;
    responder_->Write("\n");
    responder_->Flush();
  }

  void OnGone(CancelReason /*reason*/) override {
    responder_ = nullptr;
    Leave();
  }

  // Nobody reads on. Any thread.
  void Leave() {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
  }

  // -- The timeline's thread
  // False when the reader left before.
  bool WaitUntil(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    return !mutex_.AwaitWithDeadline(absl::Condition(&gone_), deadline);
  }

  // Waits until the piece before was taken. False when the reader has left.
  bool Put(std::string piece, bool last) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &TimelineExchange::Taken));
      if (gone_) return false;
      piece_ = std::move(piece);
      ended_ = last;
    }
    waker_->Add(shared_from_this());
    waker_->Wake();
    return true;
  }

 private:
  bool Taken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return gone_ || piece_.empty(); }

  IoWaker* const waker_;
  // Null once the connection has nothing to do with this any more.
  HttpResponder* responder_;
  bool begun_ = false;
  absl::Mutex mutex_;
  std::string piece_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

void WriteTimeline(Timeline* timeline, absl::Duration length, int64_t begin_unix_us,
                   TimelineExchange* exchange) {
  // The status line at once: whoever asked knows that it has begun.
  const bool there = exchange->Put(TimelineJson::kHead, /*last=*/false) &&
                     exchange->WaitUntil(absl::Now() + length);
  Timeline::Taken taken = timeline->End(MonotonicClock().NowUs());
  if (!there) return;
  TimelineJson json(std::move(taken), begin_unix_us);
  for (bool more = true; more;) {
    std::string piece;
    piece.reserve(kPieceBytes + 4096);
    more = json.Write(kPieceBytes, &piece);
    if (!exchange->Put(std::move(piece), !more)) return;
  }
}

}  // namespace

void TimelineRoute::AddTo(HttpRouter* router) {
  router->Add(HttpMethod::kGet, "/debug/trace",
              [this](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
                return Take(request, responder, waker);
              });
}

std::shared_ptr<HttpExchange> TimelineRoute::Take(const HttpRequest& request,
                                                  HttpResponder& responder, IoWaker& waker) {
  const auto refuse = [&responder](HttpReply reply) {
    responder.Reply(std::move(reply));
    return std::shared_ptr<HttpExchange>();
  };
  if (!NamesThisHost(request)) return refuse(OtherHostReply(request, "the timeline is shown"));
  const absl::StatusOr<uint32_t> seconds = ReadSeconds(request.query);
  if (!seconds.ok()) return refuse(TransportError(request.path, 400, seconds.status().message()));
  if (request.method == HttpMethod::kHead) return refuse(HttpReply());
  if (busy_.exchange(true)) {
    return refuse(TransportError(request.path, 409, "somebody else takes a timeline just now"));
  }
  thread_.Join();  // it has nothing left to do
  auto exchange = std::make_shared<TimelineExchange>(&responder, &waker);
  const int64_t begin_unix_us = absl::GetCurrentTimeNanos() / 1000;
  timeline_->Begin(MonotonicClock().NowUs());
  absl::StatusOr<Thread> thread =
      Thread::Start("timeline", [this, exchange, begin_unix_us, length = absl::Seconds(*seconds)] {
        WriteTimeline(timeline_, length, begin_unix_us, exchange.get());
        busy_.store(false);
      });
  if (!thread.ok()) {
    timeline_->End(MonotonicClock().NowUs());
    busy_.store(false);
    return refuse(TransportError(request.path, 503, thread.status().message()));
  }
  thread_ = *std::move(thread);
  exchange_ = exchange;
  return exchange;
}

void TimelineRoute::Stop() {
  if (const std::shared_ptr<TimelineExchange> exchange = exchange_.lock()) exchange->Leave();
  thread_.Join();
}

}  // namespace weft::router
