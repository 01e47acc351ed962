#include "router/text/grammar/cpu_limit.h"

#include "absl/time/clock.h"
#include "router/text/ffi/weft_text.h"

namespace weft::router {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(5);
// After the last call the thread goes on looking for so long, so that calls one after another do
// not wake it each.
constexpr int kIdleLooks = 100;

int64_t NowNs(clockid_t clock) {
  timespec now;
  if (clock_gettime(clock, &now) != 0) return 0;
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

CpuLimit::Call::Call(CpuLimit& limit, const WeftCancel* cancel) : limit_(limit), cancel_(cancel) {
  // Without a clock of its thread a call has no limit but those of the library.
  if (pthread_getcpuclockid(pthread_self(), &clock_) == 0) {
    end_ns_ = NowNs(clock_) + limit.cpu_ns_max_;
  }
  absl::MutexLock lock(&limit_.mutex_);
  place_ = limit_.calls_.insert(limit_.calls_.end(), this);
}

CpuLimit::Call::~Call() {
  absl::MutexLock lock(&limit_.mutex_);
  limit_.calls_.erase(place_);
}

CpuLimit::CpuLimit(absl::Duration cpu_max)
    : cpu_ns_max_(absl::ToInt64Nanoseconds(cpu_max)), thread_("grammar-limit", [this] { Run(); }) {}

CpuLimit::~CpuLimit() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.Join();
}

void CpuLimit::Run() {
  const auto wanted = [this] {
    mutex_.AssertReaderHeld();
    return stop_ || !calls_.empty();
  };
  absl::MutexLock lock(&mutex_);
  while (!stop_) {
    mutex_.Await(absl::Condition(&wanted));
    for (int idle = 0; idle < kIdleLooks && !stop_; ++idle) {
      for (const Call* const call : calls_) {
        idle = 0;
        if (call->end_ns_ != 0 && NowNs(call->clock_) > call->end_ns_) {
          weft_cancel_set(call->cancel_);
        }
      }
      mutex_.AwaitWithTimeout(absl::Condition(&stop_), kLook);
    }
  }
}

}  // namespace weft::router
