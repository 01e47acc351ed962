#include "router/doors/grpc/calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "router/doors/grpc/call.h"
#include "router/errors.h"

namespace weft::router {
namespace {

absl::Status TooManyWait() {
  return OverloadedError("TOO_MANY_CALLS", "too many calls wait for their message",
                         absl::Seconds(1));
}

}  // namespace

GrpcCalls::GrpcCalls(size_t working_max, const AwaitedLimits& awaited)
    : working_max_(working_max), message_timeout_us_(awaited.timeout_us), awaited_(awaited) {}

void GrpcCalls::Add(GrpcCall* call) {
  absl::MutexLock lock(&mutex_);
  all_.insert(call);
}

void GrpcCalls::Remove(GrpcCall* call) {
  absl::MutexLock lock(&mutex_);
  all_.erase(call);
  awaited_.Remove(call);
}

void GrpcCalls::AwaitMessage(GrpcCall* call, const void* connection) {
  std::shared_ptr<GrpcCall> oldest;
  {
    absl::MutexLock lock(&mutex_);
    GrpcCall* const found = awaited_.Add(call, connection, MonotonicClock().NowUs());
    if (found != nullptr) oldest = found->shared_from_this();
  }
  if (oldest != nullptr) oldest->GiveUp(TooManyWait());
}

bool GrpcCalls::MessageCame(GrpcCall* call) {
  absl::MutexLock lock(&mutex_);
  awaited_.Remove(call);
  return all_.size() - awaited_.size() <= working_max_;
}

void GrpcCalls::Look(int64_t now_us, int64_t slow_us) {
  std::vector<std::shared_ptr<GrpcCall>> all, late, too_many;
  {
    absl::MutexLock lock(&mutex_);
    const AwaitedMessages::Overdue overdue = awaited_.TakeOverdue(now_us);
    for (GrpcCall* call : overdue.late) late.push_back(call->shared_from_this());
    for (GrpcCall* call : overdue.too_many) too_many.push_back(call->shared_from_this());
    all.reserve(all_.size());
    for (GrpcCall* call : all_) all.push_back(call->shared_from_this());
  }
  for (const std::shared_ptr<GrpcCall>& call : late) {
    call->GiveUp(absl::DeadlineExceededError(
        absl::StrCat("the message did not come within ",
                     absl::FormatDuration(absl::Microseconds(message_timeout_us_)))));
  }
  for (const std::shared_ptr<GrpcCall>& call : too_many) call->GiveUp(TooManyWait());
  for (const std::shared_ptr<GrpcCall>& call : all) call->CheckSlow(now_us, slow_us);
}

void GrpcCalls::MarkDirty(std::shared_ptr<GrpcCall> call) {
  absl::MutexLock lock(&mutex_);
  dirty_.push_back(std::move(call));
}

void GrpcCalls::Wake() {
  std::vector<std::shared_ptr<GrpcCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls.swap(dirty_);
  }
  for (const std::shared_ptr<GrpcCall>& call : calls) call->Pump();
}

}  // namespace weft::router
