// Which requests are traced, and their way to an OpenTelemetry collector. A caller's own decision
// comes first (traceparent), up to a cap; of the others a share is taken, by trace id. What is
// taken is noted beside the request (observe/request_trace.h) and handed over at its end to a
// thread of its own through a bounded queue: a collector that is slow or gone costs traces, which
// are counted, and nothing else. Thread-safe; no call waits.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/bounded_queue.h"
#include "common/thread.h"
#include "router/observe/http_post.h"
#include "router/observe/otlp_options.h"
#include "router/observe/probe.h"
#include "router/observe/request_trace.h"

namespace weft::router {

// Traces a second at most, whatever callers decide, and so many at once.
inline constexpr uint32_t kTracesPerSecondMax = 200;
// Traces that wait for the collector: about half a megabyte.
inline constexpr size_t kTracesWaitingMax = 1024;

class Tracer {
 public:
  // Starts the thread. `probe` must outlive it.
  Tracer(OtlpOptions options, Probe* probe);
  ~Tracer() { Stop(); }

  // For a request that arrives at `now_us` with `traceparent`: the beginning of its trace, with ids
  // and times, or null when it is not traced. `random` gives 64 random bits.
  std::shared_ptr<RequestTrace> Begin(absl::string_view traceparent, int64_t now_us,
                                      const std::function<uint64_t()>& random);
  // The request is over, and nobody notes anything more.
  void End(std::shared_ptr<RequestTrace> trace);

  // Sends what waits, for a short while, and joins the thread. What ends later is counted as
  // dropped. Idempotent.
  void Stop();

 private:
  using Batch = std::vector<std::shared_ptr<RequestTrace>>;

  // True when a trace more keeps the cap.
  bool TakeToken(int64_t now_us);
  void Loop();
  // Sends until the collector took it, refused it or the process ends.
  void Export(const Batch& batch);

  const OtlpOptions options_;
  Probe* const probe_;
  absl::Mutex mutex_;
  double tokens_ ABSL_GUARDED_BY(mutex_) = kTracesPerSecondMax;
  int64_t tokens_us_ ABSL_GUARDED_BY(mutex_) = 0;
  BoundedQueue<std::shared_ptr<RequestTrace>> queue_{kTracesWaitingMax};
  HttpPost post_{&options_};
  absl::Notification stop_;
  absl::Notification ended_;
  Thread thread_;
};

}  // namespace weft::router
