#include "router/observe/tracer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/thread_watch.h"

namespace weft::router {
namespace {

// What ends within so long travels together.
constexpr absl::Duration kGather = absl::Seconds(1);
constexpr size_t kBatchMax = 256;
constexpr absl::Duration kBackOffMin = absl::Seconds(1);
constexpr absl::Duration kBackOffMax = absl::Seconds(30);
// For the last of them when the process ends.
constexpr absl::Duration kLastFlush = absl::Seconds(2);

// Whether the same message may be taken later (OTLP over HTTP).
bool ComesLater(unsigned code) { return code == 429 || code == 502 || code == 503 || code == 504; }

template <typename Id>
void Fill(Id* id, const std::function<uint64_t()>& random) {
  for (size_t i = 0; i < id->size(); i += sizeof(uint64_t)) {
    const uint64_t bits = random();
    std::memcpy(id->data() + i, &bits, sizeof(bits));
  }
}

// The last 7 bytes of a trace id are random (W3C Trace Context, level 2): all who see the id decide
// alike.
bool IsInShare(const TraceId& id, double share) {
  uint64_t low = 0;
  for (size_t i = id.size() - 7; i < id.size(); ++i) low = low << 8 | id[i];
  return static_cast<double>(low) < std::ldexp(share, 56);
}

}  // namespace

Tracer::Tracer(OtlpOptions options, Probe* probe)
    : options_(std::move(options)), probe_(probe), thread_("otlp", [this] { Loop(); }) {
  WEFT_LOG_INFO("traces go to http://{}:{}{} sample={}", options_.host, options_.port,
                options_.path, options_.sample);
}

std::shared_ptr<RequestTrace> Tracer::Begin(absl::string_view traceparent, int64_t now_us,
                                            const std::function<uint64_t()>& random) {
  const std::optional<TraceParent> parent = ParseTraceparent(traceparent);
  if (parent.has_value() && !parent->sampled) return nullptr;
  TraceId trace_id;
  if (parent.has_value()) {
    trace_id = parent->trace_id;
  } else {
    if (options_.sample <= 0) return nullptr;
    Fill(&trace_id, random);
    if (!IsInShare(trace_id, options_.sample)) return nullptr;
  }
  if (!TakeToken(now_us)) {
    probe_->TracesDropped(TraceDrop::kOverCap, 1);
    return nullptr;
  }
  auto trace = std::make_shared<RequestTrace>();
  trace->trace_id = trace_id;
  if (parent.has_value()) trace->parent_id = parent->span_id;
  Fill(&trace->span_id, random);
  trace->arrival_us = now_us;
  trace->arrival_unix_us = absl::GetCurrentTimeNanos() / 1000;
  return trace;
}

bool Tracer::TakeToken(int64_t now_us) {
  absl::MutexLock lock(&mutex_);
  const double passed_s = static_cast<double>(std::max<int64_t>(now_us - tokens_us_, 0)) * 1e-6;
  tokens_us_ = now_us;
  tokens_ = std::min<double>(tokens_ + passed_s * kTracesPerSecondMax, kTracesPerSecondMax);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

void Tracer::End(std::shared_ptr<RequestTrace> trace) {
  if (queue_.TryPush(std::move(trace))) return;
  probe_->TracesDropped(queue_.closed() ? TraceDrop::kShutdown : TraceDrop::kQueueFull, 1);
}

void Tracer::Stop() {
  if (!thread_.joinable()) return;
  queue_.Close();
  stop_.Notify();
  if (!ended_.WaitForNotificationWithTimeout(kLastFlush)) post_.Stop();
  thread_.Join();
}

void Tracer::Loop() {
  while (std::optional<std::shared_ptr<RequestTrace>> first = queue_.Pop()) {
    // From here on it waits for others.
    StopWatching();
    stop_.WaitForNotificationWithTimeout(kGather);
    Batch batch;
    batch.push_back(*std::move(first));
    while (batch.size() < kBatchMax) {
      std::optional<std::shared_ptr<RequestTrace>> next = queue_.Pop(absl::ZeroDuration());
      if (!next.has_value()) break;
      batch.push_back(*std::move(next));
    }
    Export(batch);
  }
  ended_.Notify();
}

void Tracer::Export(const Batch& batch) {
  const std::string body = OtlpMessage(options_.resource, batch);
  for (absl::Duration back_off = kBackOffMin;; back_off = std::min(2 * back_off, kBackOffMax)) {
    const absl::StatusOr<unsigned> code = post_.Send(body);
    if (code.ok() && *code >= 200 && *code < 300) return probe_->TracesExported(batch.size());
    const std::string why =
        code.ok() ? absl::StrCat("HTTP ", *code) : std::string(code.status().message());
    if (code.ok() && !ComesLater(*code)) {
      WEFT_LOG_WARN("the collector refused {} traces: {}", batch.size(), why);
      return probe_->TracesDropped(TraceDrop::kRefused, batch.size());
    }
    // Said once for each time that it is away.
    if (back_off == kBackOffMin) WEFT_LOG_WARN("traces wait for the collector: {}", why);
    if (stop_.WaitForNotificationWithTimeout(back_off)) {
      return probe_->TracesDropped(TraceDrop::kShutdown, batch.size());
    }
  }
}

}  // namespace weft::router
